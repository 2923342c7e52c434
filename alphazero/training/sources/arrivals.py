"""Games that actors bring to a place, as all ranks take them in, and the record of their order.

Rank 0 has the inbox. Collective, but for the record's lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from alphazero.base.errors import CheckpointError, ConfigError
from alphazero.base.files import complete_lines, replacing
from alphazero.base.log import Topic
from alphazero.base.text import counted
from alphazero.data.store.store import named_faults
from alphazero.network.weights.weights import WeightsFile
from alphazero.play import lanes as games
from alphazero.play.actors.place import OF_A_RUN, MeetingPlace, open_place
from alphazero.play.actors.pointers import Account, PlaceSettings, read_settings, rules_digest
from alphazero.play.selfplay import tables_of
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import Config
from alphazero.training.loop.job import Job, RankServices
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.inbox import Arrival, Inbox, TakenShard, require_free

ORDER = "games-order.jsonl"
GENERATIONS_OLD = 20  # how old the weights of a shard may be
WAIT_S = 1.0


@dataclass(frozen=True)
class Taken:
    """Shards taken at one time, by actor and number. rows: their games (GAME_SCHEMA), in that order."""

    shards: tuple[TakenShard, ...]
    rows: pa.RecordBatch

    @property
    def positions(self) -> int:
        """How many positions of these games are trained on."""
        return sum(shard.positions for shard in self.shards)


class Brought:
    """What actors brought to one generation."""

    def __init__(self) -> None:
        self._taken: list[Taken] = []
        self.waited_s = 0.0

    def add(self, taken: Taken) -> None:
        """Some more of them."""
        self._taken.append(taken)

    def shards(self) -> list[TakenShard]:
        """All, by actor and number."""
        return [shard for shard, _ in self._in_order()]

    def rows(self) -> list[pa.RecordBatch]:
        """The games of these, in this order."""
        return [rows for _, rows in self._in_order()]

    def _in_order(self) -> list[tuple[TakenShard, pa.RecordBatch]]:
        pairs = []
        for taken in self._taken:
            first = 0
            for shard in taken.shards:
                pairs.append((shard, taken.rows.slice(first, shard.games)))
                first += shard.games
        return sorted(pairs, key=lambda pair: (pair[0].actor, pair[0].number))

    def figures(self, step: int) -> dict[str, float]:
        """brought_positions, actors (that brought some), refused (shards), waited_s, and age_mean and
        age_oldest: how many steps old at `step` the weights were that played the positions.
        """
        shards = self.shards()
        entered = [shard for shard in shards if shard.positions]
        positions = sum(shard.positions for shard in entered)
        figures = {
            "brought_positions": float(positions),
            "actors": float(len({shard.actor for shard in entered})),
            "refused": float(sum(shard.refused for shard in shards)),
            "waited_s": self.waited_s,
        }
        if entered:
            ages = [max(0, step - shard.step) for shard in entered]
            weighed = sum(age * shard.positions for age, shard in zip(ages, entered, strict=True))
            figures |= {"age_mean": weighed / positions, "age_oldest": float(max(ages))}
        return figures

    def by_actor(self) -> dict[str, float]:
        """ACTOR/games, ACTOR/positions, ACTOR/refused (shards), ACTOR/step (of its newest weights)."""
        figures: dict[str, float] = defaultdict(float)
        for shard in self.shards():
            figures[f"{shard.actor}/games"] += shard.games
            figures[f"{shard.actor}/positions"] += shard.positions
            figures[f"{shard.actor}/refused"] += shard.refused
            figures[f"{shard.actor}/step"] = max(shard.step, figures[f"{shard.actor}/step"])
        return figures

    def describe(self, step: int) -> str:
        """The figures in words."""
        figures = self.figures(step)
        actors = counted(int(figures["actors"]), "actor")
        parts = [f"{figures['brought_positions']:,.0f} positions by {actors}"]
        if "age_mean" in figures:
            parts.append(f"{figures['age_mean']:,.0f} steps old, oldest {figures['age_oldest']:,.0f}")
        if figures["refused"]:
            parts.append(f"{counted(int(figures['refused']), 'shard')} refused")
        return ", ".join([*parts, f"waited {self.waited_s:.1f} s for them"])


def place_of(config: Config, run: RunDirectory, *, make: bool) -> MeetingPlace:
    """Where the run's learner meets its actors. Raises ConfigError and PlaceError."""
    return open_place(config.self_play.place or str(run.path / OF_A_RUN), "--place", make=make)


def check_ways(config: Config, run: RunDirectory) -> None:
    """Raises ConfigError for flags that contradict each other, BusyError where another learner has the place,
    DataError where files of others have the names of a place's.

    May wait some seconds for another learner's sign of life.
    """
    own = config.self_play
    if own.mode == "supervised" and own.self_play_from != "here":
        raise ConfigError(f"--self-play-from {own.self_play_from}: expected --mode selfplay, or mixed")
    if own.replay and (own.self_play_from != "here" or own.mode == "supervised"):
        raise ConfigError(f"--replay {own.replay}: expected --self-play-from here, --mode selfplay or mixed")
    if own.place and own.self_play_from == "here":
        raise ConfigError(f"--place {own.place}: expected --self-play-from elsewhere, or both")
    if own.mode != "supervised" and own.opening_plies >= own.max_plies:
        raise ConfigError(
            f"--opening-plies {own.opening_plies}, --max-plies {own.max_plies}: expected openings that are "
            "shorter than games"
        )
    if own.self_play_from != "here" and (own.place or (run.path / OF_A_RUN).exists()):
        place = place_of(config, run, make=True)
        with contextlib.suppress(
            ConfigError
        ):  # of another version; the file of another program is left alone
            read_settings(place)
        require_free(place)


def positions_of_generation(config: Config) -> int:
    """New positions that a generation of a run needs, at the least 1."""
    own = config.self_play
    share = 1 - own.historical_share if own.mode == "mixed" else 1.0
    return max(1, round(own.steps_per_generation * config.training.batch_size * share / own.reuse))


def place_settings(config: Config) -> PlaceSettings:
    """What actors play by."""
    own = dataclasses.replace(config.self_play, place="", replay="", self_play_from="here", generations=1)
    own = dataclasses.replace(own, syzygy="tables" if own.syzygy else "")
    return PlaceSettings(
        game=config.network.game,
        lead_positions=positions_of_generation(config),
        seed=config.training.seed,
        precision=config.training.precision,
        search=config.search,
        self_play=own,
        rules=rules_digest(config.network.game),
    )


class Arrivals:
    """The collective side of an inbox."""

    def __init__(self, job: Job, services: RankServices) -> None:
        """Take the lease of the place. Raises PlaceError and BusyError on all ranks alike."""
        self._job, self._exchange = job, services.exchange
        self.lead = positions_of_generation(job.config)
        self.order = GameOrder(job.run.path / ORDER, services.writes, services.exchange)
        self._inbox: Inbox | None = None

        def open_inbox() -> str:
            place = place_of(job.config, job.run, make=True)
            steps_back = GENERATIONS_OLD * job.config.self_play.steps_per_generation
            tables = tables_of(job.config.self_play, job.spec.name)
            say = partial(services.console.say, topic=Topic.NEWS)
            self._inbox = Inbox(place, place_settings(job.config), job.run, steps_back, say, tables)
            self._inbox.start()
            return place.name

        name = self._exchange.on_main(open_inbox)
        services.console.say(f"games come from {name}: alphazero selfplay --for {name} plays for this run")

    def stand(self, step: int, accounts: Mapping[str, Account]) -> None:
        """The run stands there, and has taken these shards."""
        if self._inbox:
            steps = {int(line["step"]) for line in self.order.lines}
            self._inbox.stand(step, accounts, steps)

    def publish(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Have the network played with, by the thread of rank 0. tensors: whole, as it plays."""
        if self._inbox:
            config = self._job.config
            averaged = config.training.ema_decay > 0
            copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
            metadata: Any = {"step": step, "run": self._job.run.path.name, "averaged": averaged}
            self._inbox.publish(step, WeightsFile(config.network, copies, metadata))

    def take(self, most: int, wait_s: float = 0.0) -> Taken:
        """Shards with about `most` positions, as far as they are there; the same on all ranks.

        wait_s: how long to wait for the first one.
        """
        taken: list[Arrival] = []

        def look() -> list[dict[str, Any]]:
            assert self._inbox is not None
            self._inbox.wait(wait_s if most > 0 else 0.0)
            taken.extend(sorted(self._inbox.take(most), key=lambda new: (new.shard.actor, new.shard.number)))
            return [dataclasses.asdict(arrival.shard) for arrival in taken]

        shards = tuple(TakenShard(**table) for table in self._exchange.on_main(look))
        batches = [arrival.rows for arrival in taken if arrival.rows is not None]
        content = games.to_bytes(joined(batches)) if self._inbox and shards else b""
        if shards:
            content = self._exchange.bytes_from(0, content)
        return Taken(shards, games.from_bytes(content, "games of rank 0") if shards else joined([]))

    def checked_s(self) -> float:
        """Processor time that the checks of shards have taken on rank 0, which has the thread."""
        return self._inbox.checked_s if self._inbox else 0.0

    def close(self, *, ended: bool) -> None:
        """Give the lease back. ended: the run made its last step."""
        if self._inbox:
            self._inbox.close(ended=ended)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches (GAME_SCHEMA) in their order."""
    whole = pa.Table.from_batches(list(batches), games.GAME_SCHEMA).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], games.GAME_SCHEMA)


class GameOrder:
    """games-order.jsonl of a run: a line a generation, which shards entered. Each host has one.

    What was trained on follows from it and the games alone, since a generation's games are one shard of the
    run's store.
    """

    def __init__(self, path: Path, writes: bool, exchange: Exchange) -> None:
        self._path, self._writes, self._exchange = path, writes, exchange
        self.lines: list[dict[str, Any]] = []

    def rewind(self, generation: int, holder: int) -> None:
        """Keep the lines up to a generation, as the host of rank `holder` has them. Collective."""
        own = self._exchange.on_each(lambda: self._read(generation) if self._writes else [])
        self.lines = self._exchange.from_rank(max(0, holder), own)

        def write() -> None:
            if self._writes and (self.lines or self._path.exists()):
                with named_faults("write", self._path), replacing(self._path) as file:
                    file.write("".join(json.dumps(line) + "\n" for line in self.lines).encode())

        self._exchange.on_each(write)

    def append(self, generation: int, step: int, shards: Sequence[TakenShard]) -> None:
        """The line of a generation that begins at `step`. Collective."""
        record = {
            "generation": generation,
            "step": step,
            "shards": [dataclasses.asdict(shard) for shard in shards],
        }
        self.lines.append(record)

        def write() -> None:
            if self._writes:
                with named_faults("write", self._path), self._path.open("a") as file:
                    file.write(json.dumps(record) + "\n")

        self._exchange.on_each(write)

    def _read(self, generation: int) -> list[dict[str, Any]]:
        try:
            lines = [json.loads(line) for line in complete_lines(self._path)]
            return [line for line in lines if line["generation"] <= generation]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self._path}: damaged: {error}; expected what the run wrote") from None
