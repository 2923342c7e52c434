"""The games that a run plays: on every host's disk, appended to, rewound, sent where they lack. Collective.

With them what checkpoints keep: the games under way, checked before anything continues from them, and where
the generations stand.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pyarrow as pa

from alphazero.base.errors import CheckpointError
from alphazero.base.records import from_table
from alphazero.base.text import reason
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import MANIFEST_NAME, GameStore
from alphazero.play import lanes as games
from alphazero.play.actors.pointers import Account
from alphazero.play.selfplay import check_lanes
from alphazero.run.directory import RunDirectory
from alphazero.training.ranks.exchange import Exchange


@dataclass(frozen=True)
class GenerationState:
    """How many generations were played, and what they gave.

    end_step: the step until which the newest generation is trained on. positions: full searches of all
    stored games. num_shards, store_id: the store of games as it was then. given_id: of the window of given
    games that are mixed in, empty where there are none. taken: by actor, what was done with the shards that
    came from a place.
    """

    generation: int = 0
    end_step: int = 0
    games: int = 0
    positions: int = 0
    num_shards: int = 0
    store_id: str = ""
    given_id: str = ""
    taken: dict[str, Account] = field(default_factory=dict)

    @classmethod
    def of(cls, table: object) -> GenerationState:
        """The state in a checkpoint. Raises CheckpointError."""
        try:
            return from_table(cls, table)
        except ValueError as error:
            raise CheckpointError(f"self-play in the checkpoint: {reason(error)}") from None


class SharedGames:
    """The store of games of a run. The ranks that write keep a copy each; all ranks read one."""

    def __init__(self, run: RunDirectory, game_name: str, writes: bool, exchange: Exchange) -> None:
        self._directory = run.games
        self._game_name = game_name
        self._writes = writes
        self._exchange = exchange

    def holder_of(self, standing: GenerationState) -> int:
        """The lowest rank whose host has the standing's games, -1 where it has none; nothing is moved.

        Raises CheckpointError on all ranks where no host has them.
        """
        held = self._exchange.on_each(lambda: self._held(standing) if self._writes else "")
        if not standing.num_shards:
            return -1
        ids = self._exchange.gather(held)
        if standing.store_id not in ids:
            raise CheckpointError(
                f"{self._directory}: not the games of generation {standing.generation} that the "
                "checkpoint learned from; expected them, or --fresh-start",
                found_by_all_ranks=True,
            )
        return ids.index(standing.store_id)

    def rewind(self, standing: GenerationState) -> GameStore | None:
        """Have every host's store hold the standing's games and no others; they are sent where they lack.

        Gives the store, None without games. Raises CheckpointError where no host has them; then nothing has
        been moved.
        """
        holder = self.holder_of(standing)
        held = self._exchange.on_each(lambda: self._open_rewound(standing) if self._writes else "")
        if holder >= 0:
            self._send(holder, standing.num_shards, lacks=self._writes and held != standing.store_id)
        return GameStore.open(self._directory) if standing.games else None

    def append(self, rows: pa.RecordBatch, before: GenerationState) -> GameStore | None:
        """One more shard, none where there are no rows; gives the store when every host has it.

        before: where the run stood until now. None where it has no games yet.
        """
        self._exchange.on_each(lambda: self._store.append(rows) if self._writes and rows.num_rows else None)
        return GameStore.open(self._directory) if before.games + rows.num_rows else None

    def append_shard(self, content: bytes, before: GenerationState) -> GameStore | None:
        """One more shard, by its bytes; empty ones are none. Otherwise as `append`."""
        self._exchange.on_each(
            lambda: self._store.append_shard(content) if self._writes and content else None
        )
        return GameStore.open(self._directory) if before.games or content else None

    def _held(self, standing: GenerationState) -> str:
        """The id of this host's store, were it cut back to the standing; "" for too few games or none."""
        if not standing.num_shards or not (self._directory / MANIFEST_NAME).exists():
            return ""
        manifest = GameStore.open(self._directory).manifest
        if len(manifest.shards) < standing.num_shards:
            return ""
        return dataclasses.replace(manifest, shards=manifest.shards[: standing.num_shards]).sha256

    def _open_rewound(self, standing: GenerationState) -> str:
        """Open this host's store and cut it back to the standing; the id of what it holds, "" for too few."""
        self._store = GrowingStore(self._directory, self._game_name)
        if len(self._store.shards) < standing.num_shards:
            return ""
        self._store.truncate_to(standing.num_shards)
        return self._store.manifest.sha256 if self._store.manifest else ""

    def _send(self, source: int, num_shards: int, *, lacks: bool) -> None:
        """Every shard from rank `source` to the writers that lack it."""
        exchange = self._exchange
        if not any(exchange.numbers(int(lacks))):
            return
        if lacks:
            self._store.truncate_to(0)
        for number in range(num_shards):
            own = b""
            if exchange.rank == source:
                own = (self._directory / self._store.shards[number].name).read_bytes()
            content = exchange.bytes_from(source, own)
            if lacks:
                self._store.append_shard(content)


def saved_lanes(content: bytes, game_name: str, num_lanes: int, exchange: Exchange) -> pa.RecordBatch:
    """The lanes of a checkpoint, as many as the settings have. Collective.

    Raises DataError on all ranks unless all their games can continue, CheckpointError for another number.
    """
    lanes = exchange.on_each(lambda: _checked(content, game_name))
    if lanes.num_rows != num_lanes:
        raise CheckpointError(
            f"--lanes {num_lanes}: the run has {lanes.num_rows}; expected as many, or --fresh-start",
            found_by_all_ranks=True,
        )
    return lanes


def _checked(content: bytes, game_name: str) -> pa.RecordBatch:
    lanes = games.from_bytes(content, "lanes.arrow")
    check_lanes(game_name, games.from_batch(lanes, "lanes.arrow", under_way=True), "lanes.arrow")
    return lanes
