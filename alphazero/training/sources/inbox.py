"""A thread of rank 0 beside training, at work in a place: it keeps the learner's lease, brings shards in and
weights out, and removes what is not needed.

A place that fails for a while stops nothing here: training continues with the games that are there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from alphazero.base.errors import AlphaZeroError, BusyError, CheckpointError, DataError
from alphazero.base.files import replacing
from alphazero.base.text import counted
from alphazero.data.store.growing import REFUSED
from alphazero.games.tablebases import Tablebases
from alphazero.network.weights.checkpoint import read_state
from alphazero.network.weights.weights import WeightsFile
from alphazero.play import lanes as games
from alphazero.play.actors.arrival import check_shard
from alphazero.play.actors.place import GAMES, WEIGHTS, MeetingPlace
from alphazero.play.actors.pointers import (
    Account,
    LearnerState,
    PlaceSettings,
    publish_weights,
    read_learner,
    read_status,
    write_learner,
    write_settings,
)
from alphazero.play.actors.shard import MOST_SHARD_BYTES, ShardName, is_actor
from alphazero.run import checkpoint_files
from alphazero.run.directory import RunDirectory

RENEW_S = 2.0
RENEWALS = 5  # in which another learner's counter must move, or it is gone
LONGEST_PAUSE_S = 60.0  # between tries where the place fails
MOST_ACTOR_BYTES = 1 << 30  # of an actor's shards that are looked at in a round
MOST_REFUSED_BYTES = 1 << 28  # kept of what was refused
KEPT_WEIGHTS = 3
STILL_S = 3600.0  # an actor whose status stands that long is gone


@dataclass(frozen=True)
class TakenShard:
    """A shard that entered, or was refused: then it has no games. step: of the weights that played it."""

    actor: str
    number: int
    sha256: str
    games: int = 0
    positions: int = 0
    step: int = 0
    refused: bool = False


@dataclass(frozen=True)
class Arrival:
    """A shard that was looked at. rows: its games (GAME_SCHEMA), None where it was refused."""

    shard: TakenShard
    rows: pa.RecordBatch | None

    @property
    def plies(self) -> int:
        """How many positions its games have, with those that are not trained on."""
        return 0 if self.rows is None else len(games.entries(self.rows, "moves"))


def accounts_with(accounts: Mapping[str, Account], shards: Iterable[TakenShard]) -> dict[str, Account]:
    """The accounts of actors when these shards have entered or were refused."""
    changed = dict(accounts)
    for shard in shards:
        before = changed.get(shard.actor, Account())
        changed[shard.actor] = Account(
            shard.number + 1, before.positions + shard.positions, before.refused + shard.refused
        )
    return changed


def require_free(place: MeetingPlace, renew_s: float = RENEW_S) -> None:
    """Return where no learner is at work in a place. Raises BusyError, PlaceError and DataError.

    Whether another one's counter moves is seen by this host's own clock; no clocks are compared.
    """
    first = read_learner(place)
    until = time.monotonic() + RENEWALS * renew_s
    while first is not None and first.id and not first.ended and time.monotonic() < until:
        time.sleep(renew_s / 2)
        now = read_learner(place)
        if now is None or not now.id:
            return
        if (now.id, now.counter) != (first.id, first.counter):
            raise _taken(place, now)


def _taken(place: MeetingPlace, other: LearnerState) -> BusyError:
    return BusyError(
        f"{place.name}: learner {other.id[:8]} works there, at step {other.step}; expected one learner a "
        "place: wait for it to end, or use another --place"
    )


class Inbox:
    """Shards of a place, checked and in order, until training takes them."""

    def __init__(
        self,
        place: MeetingPlace,
        settings: PlaceSettings,
        run: RunDirectory,
        steps_back: int,
        say: Callable[[str], None],
        tables: Tablebases | None = None,
        renew_s: float = RENEW_S,
    ) -> None:
        """steps_back: how many steps old the weights of a shard may be. say: from another thread."""
        self._place, self._settings, self._run, self._say = place, settings, run, say
        self._steps_back, self._tables, self._renew_s = steps_back, tables, renew_s
        # Of all positions: of so many is one trained on.
        self._most_waiting = 3 * settings.lead_positions / settings.self_play.full_search_share
        self._changed = threading.Condition()  # guards what both threads use, from here
        self._queue: deque[Arrival] = deque()
        self._next: dict[str, int] = {}
        self._state = LearnerState(secrets.token_hex(8), 0, 0, False, {})
        self._weights: WeightsFile | None = None
        self._weights_step = -1
        self._stands = self._stopping = self._fails = False
        self._fault: BaseException | None = None  # to here
        self.checked_s = 0.0
        self._settings_digest = ""
        self._published: deque[int] = deque(maxlen=KEPT_WEIGHTS)
        self._gaps: dict[str, int] = {}
        self._renewed = time.monotonic()
        self._last = ""  # the actor of the shard that was looked at last
        self._said: set[str] = set()  # once a run
        self._faults: set[str] = set()  # of the place, said since it answered last
        self._cleaned: Path | None = None
        self._beats: dict[str, tuple[int, float]] = {}
        self._thread = threading.Thread(target=self._run_thread, name="alphazero-inbox", daemon=True)

    def start(self) -> None:
        """Take the lease and write the settings; shards are looked at once the run stands somewhere.

        Raises PlaceError and DataError.
        """
        if (before := read_learner(self._place)) is not None:
            self._note_published(before.published)
            # Without these accounts actors would take all their games for unused, and pause.
            self._state = replace(self._state, step=before.step, actors=before.actors)
        self._note_published(*(step for step, _ in self._weights_there()))
        write_learner(self._place, self._state)
        self._settings_digest = write_settings(self._place, self._settings)
        self._thread.start()

    def stand(self, step: int, accounts: Mapping[str, Account], steps: Collection[int]) -> None:
        """The run stands at this step and has taken these shards; what was looked at beyond is forgotten.

        steps: at which it has published weights.
        """
        with self._changed:
            self._note_published(*steps)
            self._queue.clear()
            self._next = {actor: account.shards for actor, account in accounts.items()}
            self._state = replace(self._state, step=step, actors=dict(accounts))
            self._stands = True

    def publish(self, step: int, weights: WeightsFile) -> None:
        """Have these weights, whose tensors are on the CPU and belong to the inbox, played with."""
        with self._changed:
            self._weights, self._weights_step = weights, step
            self._state = replace(self._state, step=step)
            self._changed.notify_all()

    def take(self, most: int) -> list[Arrival]:
        """The next shards, until they have `most` positions or there is none. Raises what the thread met."""
        taken: list[Arrival] = []
        with self._changed:
            if self._fault is not None:
                raise self._fault
            while self._queue and most > 0:
                taken.append(self._queue.popleft())
                most -= taken[-1].shard.positions
            shards = [arrival.shard for arrival in taken]
            self._state = replace(self._state, actors=accounts_with(self._state.actors, shards))
            self._changed.notify_all()
        return taken

    def wait(self, seconds: float) -> None:
        """Return when there is a shard, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queue or self._fault), seconds)

    def close(self, *, ended: bool) -> None:
        """Give the lease back. ended: the run made its last step. Raises nothing: the place may be gone."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout=30.0)
        if self._fault is not None or self._thread.is_alive():
            return
        try:
            self._require_lease()
            self._renew(replace(self._state, id="", ended=ended))
            if self._stands:
                self._clean()
        except AlphaZeroError as error:
            self._say(f"{error}")

    def _run_thread(self) -> None:
        pause_s = self._renew_s
        try:
            while not self._stopping:
                self._fails = True
                try:
                    self._look()
                    pause_s = self._renew_s
                except BusyError:
                    raise
                except AlphaZeroError as error:  # the place fails or refuses, or a disk here is full
                    text = f"{error}; training continues with the games that it has"
                    self._say_once(self._faults, str(error), text)
                    pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
                else:
                    self._faults.clear()
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping or self._has_weights(), pause_s)
        except BaseException as error:  # for the thread that trains
            with self._changed:
                self._fault = error
                self._changed.notify_all()

    def _say_once(self, said: set[str], key: str, text: str) -> None:
        if key not in said:
            said.add(key)
            self._say(text)

    def _look(self) -> None:
        """One round of the thread. A place that cannot be written, as it is full, is read and cleaned."""
        self._require_lease()
        fault: AlphaZeroError | None = None
        try:
            self._renew(self._state)
            self._publish()
        except AlphaZeroError as error:
            fault = error
        self._fails = fault is not None
        if self._stands:
            self._fetch()
            self._clean()
        if fault is not None:
            raise fault

    def _has_weights(self) -> bool:
        """Whether there are some to write at once: those that could not be written wait like all else."""
        return self._weights is not None and not self._fails

    def _publish(self) -> None:
        """Write the weights that wait, if any do."""
        with self._changed:
            weights, step, self._weights = self._weights, self._weights_step, None
        if weights is None:
            return
        try:
            publish_weights(self._place, step, weights, self._settings_digest)
        except BaseException:
            with self._changed:  # unless newer ones came meanwhile
                self._weights = self._weights or weights
            raise
        self._published.append(step)
        self._note_published(step)
        # All but the newest that this learner published: actors that play with others have them already.
        for there, name in self._weights_there():
            if there not in self._published:
                self._place.delete(name)

    def _note_published(self, *steps: int) -> None:
        """Weights of these steps were published: a run that goes back takes their games, too."""
        with self._changed:
            self._state = replace(self._state, published=max(self._state.published, *steps, -1))

    def _require_lease(self) -> None:
        """Raises BusyError where another learner has it."""
        there = read_learner(self._place)
        if there is not None and there.id != self._state.id:
            raise _taken(self._place, there)

    def _renew(self, state: LearnerState) -> None:
        """Write the lease, which must be ours."""
        with self._changed:
            self._state = replace(self._state, counter=self._state.counter + 1)
            state = replace(state, counter=self._state.counter)
        self._renewed = time.monotonic()
        write_learner(self._place, state)

    def _keep_lease(self) -> None:
        """Renew the lease where one look takes long. Raises BusyError; other faults the next look meets."""
        if time.monotonic() - self._renewed < self._renew_s:
            return
        try:
            self._require_lease()
            self._renew(self._state)
        except BusyError:
            raise
        except AlphaZeroError:
            pass

    def _fetch(self) -> None:
        """Look at the shards that are there, an actor's in the order of their numbers, all actors in turn."""
        lists = self._waiting()
        while lists and not self._stopping:
            # Each round begins with another actor: where room is short, all get some of it.
            for actor in sorted(lists, key=lambda actor: (actor <= self._last, actor)):
                if self._is_full() or self._has_weights():
                    return
                self._keep_lease()
                self._last = actor
                name, size = lists[actor].popleft()
                try:
                    goes_on = self._is_next(name) and self._take_in(name, size)
                except AlphaZeroError as error:
                    self._require_lease()  # raises where the place as a whole fails
                    goes_on = False
                    self._say_once(self._said, str(error), f"{error}; games of other actors are taken")
                if not (goes_on and lists[actor]):
                    del lists[actor]

    def _waiting(self) -> dict[str, deque[tuple[ShardName, int]]]:
        """Shards that are there, with their sizes: by actor in the order of their numbers.

        Of each no more than a gigabyte; the others come in the next rounds.
        """
        waiting: dict[str, list[tuple[ShardName, int]]] = {}
        with self._changed:
            done = dict(self._next)
        for entry in self._place.entries(GAMES):
            name = ShardName.of(entry.name)
            if name is not None and name.number >= done.get(name.actor, 0):
                waiting.setdefault(name.actor, []).append((name, entry.size_bytes))
        lists = {}
        for actor, names in waiting.items():
            names.sort()
            before = itertools.accumulate((size for _, size in names), initial=0)
            pairs = zip(names, before, strict=False)  # the last sum is that of all
            lists[actor] = deque(one for one, bytes_before in pairs if bytes_before < MOST_ACTOR_BYTES)
        return lists

    def _is_full(self) -> bool:
        with self._changed:
            return sum(arrival.plies for arrival in self._queue) >= self._most_waiting

    def _is_next(self, name: ShardName) -> bool:
        """Whether a shard is the next of its actor, or those before it are gone."""
        if name.number == (wanted := self._next.get(name.actor, 0)):
            return True
        # A listing may miss an object that is written while it is made; a second one does not.
        if self._gaps.get(name.actor) != wanted:
            self._gaps[name.actor] = wanted
            return False
        lost = counted(name.number - wanted, "shard")
        self._say(f"{lost} of actor {name.actor} are gone: a later checkpoint of the run has used them")
        return True

    def _take_in(self, name: ShardName, size_bytes: int) -> bool:
        """Fetch and check a shard, and put it behind the others; False where it is gone."""
        with self._changed:
            before = self._next.get(name.actor, 0)
        content = b"" if size_bytes > MOST_SHARD_BYTES else self._place.get(str(name), MOST_SHARD_BYTES)
        if content is None:
            return False
        began, sha256 = time.thread_time(), hashlib.sha256(content).hexdigest()
        try:
            if size_bytes > MOST_SHARD_BYTES:
                raise DataError(f"{name}: {size_bytes:,} bytes; at most {MOST_SHARD_BYTES:,} are taken")
            steps = range(max(0, self._state.step - self._steps_back), self._state.published + 1)
            new = check_shard(name, content, self._settings, steps, self._tables)
            rows: pa.RecordBatch | None = new.batch
            shard = TakenShard(name.actor, name.number, sha256, new.batch.num_rows, new.positions, new.step)
        except (DataError, MemoryError) as error:
            rows, shard = None, TakenShard(name.actor, name.number, sha256, refused=True)
            too_large = f"{name}: its check takes more memory than is free"
            self._refuse(name, content, too_large if isinstance(error, MemoryError) else str(error))
        self.checked_s += time.thread_time() - began
        with self._changed:
            if self._next.get(name.actor, 0) == before:  # the run did not go back meanwhile
                self._queue.append(Arrival(shard, rows))
                self._next[name.actor] = name.number + 1
                self._changed.notify_all()
        return True

    def _refuse(self, name: ShardName, content: bytes, why: str) -> None:
        """Set a shard aside with the reason."""
        self._say(f"refused: {why}")
        folder = self._run.games / REFUSED
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if sum(path.stat().st_size for path in folder.iterdir()) + len(content) <= MOST_REFUSED_BYTES:
                with replacing(folder / f"{name.actor}-{name.number:08}-{name.digest}.arrow") as file:
                    file.write(content)
            with (folder / "reasons.jsonl").open("a") as lines:
                record = {"actor": name.actor, "number": name.number, "digest": name.digest, "reason": why}
                lines.write(json.dumps(record) + "\n")
        except OSError as error:
            self._say_once(self._said, f"{folder}", f"{folder}: {error.strerror}")

    def _weights_there(self) -> list[tuple[int, str]]:
        """Steps and names of the weights in the place."""
        weights = []
        for entry in self._place.entries(WEIGHTS):
            text = entry.name.removeprefix(f"{WEIGHTS}/").removesuffix(".safetensors")
            if text.isascii() and text.isdigit():
                weights.append((int(text), entry.name))
        return weights

    def _clean(self) -> None:
        """Delete the shards that a complete checkpoint has used, and what actors that are gone have left."""
        newest = next(reversed(checkpoint_files.checkpoints_in(self._run.checkpoints)), None)
        if newest is None or newest == self._cleaned:
            return
        try:
            taken = read_state(newest).self_play.get("taken", {})
        except CheckpointError:
            return
        done = {actor: int(account["shards"]) for actor, account in taken.items()}
        left: set[str] = set()
        for entry in self._place.entries(GAMES):
            name = ShardName.of(entry.name)
            if name is not None and name.number < done.get(name.actor, 0):
                self._keep_lease()
                self._place.delete(entry.name)
            elif name is not None:
                left.add(name.actor)
        for actor in self._place.folders(GAMES):
            self._keep_lease()
            if actor in left or not is_actor(actor) or (status := read_status(self._place, actor)) is None:
                continue
            beat, since = self._beats.setdefault(actor, (status.beat, time.monotonic()))
            if beat != status.beat:
                self._beats[actor] = (status.beat, time.monotonic())
            elif status.ended or time.monotonic() - since > STILL_S:
                self._place.clear(f"{GAMES}/{actor}")
        self._cleaned = newest
