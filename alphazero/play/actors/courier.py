"""The traffic of an actor with its place, in a separate thread: play never waits for it.

Finished games wait on this machine's disk until the place has them, also those of an actor that was killed:
the next one here with the same place publishes them. What fails is tried again, ever less often.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.base.files import naming, replacing
from alphazero.base.log import Say
from alphazero.base.text import counted
from alphazero.data.store.verification import default_cache_directory
from alphazero.machine.lock import LOCK_FILE, lock_file
from alphazero.play.actors.place import MeetingPlace
from alphazero.play.actors.pointers import (
    Account,
    ActorStatus,
    LearnerState,
    NewestWeights,
    fetch_weights,
    read_learner,
    read_newest,
    settings_digest,
    write_status,
)
from alphazero.play.actors.shard import ShardName, is_actor, shard_of
from alphazero.play.lanes import num_trained_positions

if TYPE_CHECKING:
    import pyarrow as pa

LOOK_S = 5.0  # between looks for newer weights and at what the learner has used
REPORT_S = 60.0  # between statuses and lines
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between tries of a place that fails
_SETTINGS = "settings"  # of an actor's directory: sha256 of the settings by which it plays
LAST_S = 5.0  # for the last games, of an actor that was told to end


class Tries:
    """How long to wait after a failure, and when to print it: a new one at once, the same one seldom."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._pause_s, self._said, self._said_at = 0.0, "", 0.0

    def failed(self, error: Exception) -> float:
        """Seconds until the next try, of random length: many actors may have failed together."""
        self._pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        cause, now = str(error).rpartition(": ")[2], time.monotonic()
        if cause != self._said or now - self._said_at > REPORT_S:
            self._said, self._said_at = cause, now
            self._say(f"{error}; will be tried again")
        return random.uniform(self._pause_s / 2, self._pause_s)

    def succeeded(self) -> None:
        """Print it, after a failure."""
        if self._said:
            self._say("the place answers again")
        self._pause_s, self._said = 0.0, ""


@contextlib.contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """What this machine's disk refuses in the block, as a DataError that names the file."""
    try:
        with naming(path):
            yield
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}; expected a disk that has space") from error


@dataclass(frozen=True)
class FetchedWeights:
    """Weights on this machine: the step that they are of, and their file."""

    step: int
    path: Path


class Courier:
    """A context manager; on the way out what is finished is published, within LAST_S or by a later actor.

    The player reads newest, unused, settings_changed and run_ended, and sets moves (so far), step (of the
    weights that it plays with) and opened (of the newest that it tried to play with).
    """

    def __init__(
        self, place: MeetingPlace, settings: str, status: ActorStatus, say: Say, steps_back: int
    ) -> None:
        """settings: sha256 of the place's settings.json. status: as the actor begins. steps_back: how far
        behind weights are fetched however slow the link is.
        """
        self._place, self._settings, self._status, self._say = place, settings, status, say
        self._steps_back = steps_back
        where = hashlib.sha256(place.address.encode()).hexdigest()[:16]
        self._directory = default_cache_directory() / "actors" / where / status.actor
        self._waiting: list[tuple[ShardName, bytes]] = []  # no content: it is on the disk
        self._shards: list[tuple[int, int]] = []  # of this actor: step of the weights, positions
        self._learner: LearnerState | None = None
        self._reported = -REPORT_S
        self._moves = 0  # when it last reported
        self._fetch_after = 0.0
        self._is_full = False  # the disk, when games were last written to it
        self._wake, self._is_closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        self.newest: FetchedWeights | None = None
        self.settings_changed = self.run_ended = False
        self.moves, self.step, self.opened = 0, -1, -1

    def __enter__(self) -> Courier:
        with _on_disk(self._directory / _SETTINGS):
            self._lock = lock_file(self._directory / LOCK_FILE, LAST_S)
            (self._directory / _SETTINGS).write_text(self._settings)
        self._waiting = [(name, b"") for name in sorted(self._left_behind())]
        if self._waiting:
            self._say(f"{counted(len(self._waiting), 'shard')} of earlier actors here will be published")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._wake.set()
        self._thread.join(LAST_S)
        if self._waiting:
            where = f"stay in {self._directory}, from which the next actor here publishes them"
            self._say(f"{counted(len(self._waiting), 'shard')} could not be published and {where}")
        elif not self._thread.is_alive():
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()

    @property
    def unused(self) -> tuple[int, int]:
        """This actor's positions that the learner has not used, and by how many steps the oldest of them is
        behind the newest weights.
        """
        left = self._shards[self._account.shards :]
        behind = self.newest.step - left[0][0] if left and self.newest else 0
        return sum(positions for _, positions in left), behind

    @property
    def _account(self) -> Account:
        accounts = self._learner.actors if self._learner else {}
        return accounts.get(self._status.actor, Account())

    def deliver(self, batch: pa.RecordBatch, rules: str) -> None:
        """Take finished games (GAME_SCHEMA): they are on the disk when this returns, and published soon."""
        name, content = shard_of(self._status.actor, len(self._shards), batch, self.step, rules)
        path = self._directory / str(name)
        try:
            with _on_disk(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    file.write(content)
            content, self._is_full = b"", False
        except DataError as error:
            if not self._is_full:
                self._say(f"{error}; games wait in memory until they are published")
            self._is_full = True
        self._shards.append((self.step, num_trained_positions(batch)))
        self._waiting.append((name, content))
        self._wake.set()

    def _left_behind(self) -> list[ShardName]:
        """Take over shards of actors here that ended before the place had them."""
        names: list[ShardName] = []
        for directory in self._directory.parent.iterdir():
            if not is_actor(directory.name) or directory == self._directory:
                continue
            lock = lock_file(directory / LOCK_FILE, 0)
            if lock is None:
                continue  # it plays
            settings = directory / _SETTINGS
            is_same = settings.exists() and settings.read_text() == self._settings
            for path in directory.rglob("*.arrow") if is_same else ():  # else for a learner before
                if name := ShardName.of(str(path.relative_to(directory))):
                    own = self._directory / str(name)
                    own.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(own)
                    names.append(name)
            shutil.rmtree(directory, ignore_errors=True)
            lock.release()
        return names

    def _run(self) -> None:
        tries = Tries(self._say)
        is_last = False
        while not is_last:
            is_last = self._is_closing
            self._wake.clear()
            pause_s = LOOK_S
            try:
                self._publish()
                if not is_last:
                    self._look()
                if is_last or time.monotonic() - self._reported >= REPORT_S:
                    self._report(is_last)
                tries.succeeded()
            except (AlphaZeroError, OSError) as error:
                pause_s = tries.failed(error)
            if not is_last:
                self._wake.wait(pause_s)

    def _publish(self) -> None:
        """All that waits, in order: a number is published only after the one before."""
        while self._waiting:
            name, content = self._waiting[0]
            path = self._directory / str(name)
            if content or path.exists():  # else an actor that took this one for dead publishes it
                self._place.put(str(name), content or path.read_bytes())
                path.unlink(missing_ok=True)
            del self._waiting[0]

    def _look(self) -> None:
        """Fetch newer weights; now and then see what the learner did."""
        newest = read_newest(self._place)
        if newest is not None and newest.settings != self._settings:
            # Or they are weights of a start before, and others will follow.
            self.settings_changed = settings_digest(self._place) != self._settings
        elif newest is not None and (self.newest is None or self._wants(newest)):
            self._fetch(newest)
        before, self._learner = self._learner, read_learner(self._place)
        # An ended run may be continued later: an actor that finds it so plays as it does without a learner.
        ends = self._learner is not None and self._learner.ended
        self.run_ended = self.run_ended or (ends and before is not None and not before.ended)

    def _wants(self, newest: NewestWeights) -> bool:
        """Only after the last ones were opened, and for a tenth of the time: a link may be slow.

        But a learner refuses games of old weights.
        """
        is_used = self.newest is not None and self.opened == self.newest.step
        is_due = time.monotonic() >= self._fetch_after or newest.step - self.step > self._steps_back
        return is_used and self.opened != newest.step and is_due

    def _fetch(self, newest: NewestWeights) -> None:
        path, began = self._directory / f"{newest.step}.safetensors", time.monotonic()
        with _on_disk(path):
            if not fetch_weights(self._place, newest, path):
                return
        self._fetch_after = time.monotonic() + 9 * (time.monotonic() - began)
        for old in self._directory.glob("*.safetensors"):
            if old != path and (self.newest is None or old != self.newest.path):  # which may be being read
                old.unlink(missing_ok=True)
        self.newest = FetchedWeights(newest.step, path)

    def _report(self, is_last: bool) -> None:
        """The status, and after the first one a line."""
        now, before = time.monotonic(), self._status
        speed = (self.moves - self._moves) / max(now - self._reported, 1.0)
        published = len(self._shards) - sum(name.actor == before.actor for name, _ in self._waiting)
        self._status = replace(
            before,
            beat=before.beat + 1,
            shards=published,
            positions=sum(positions for _, positions in self._shards[:published]),
            positions_per_s=round(speed, 1),
            step=self.step,
            ended=is_last,
        )
        write_status(self._place, self._status)
        self._moves, self._reported = self.moves, now
        if before.beat or is_last:
            refused = f", {counted(self._account.refused, 'shard')} refused" if self._account.refused else ""
            self._say(
                f"{speed:,.0f} positions/s | {counted(published, 'shard')} with {self._status.positions:,} "
                f"positions published, {self.unused[0]:,} not used yet{refused} | weights of step {self.step}"
            )
