"""The run's own games on every host's disk: appended to, rewound, sent where they lack. All collective."""

from __future__ import annotations

import pyarrow as pa

from alphazero.data.sampling.replay_window import newest_games
from alphazero.data.sampling.window import Window
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.errors import CheckpointError
from alphazero.pipeline.standing import Standing
from alphazero.run.run_directory import RunDirectory
from alphazero.training.exchange import Exchange


class SharedGames:
    """The store of games of a run. The ranks that write keep a copy each; all ranks read one."""

    def __init__(self, run: RunDirectory, game_name: str, writes: bool, exchange: Exchange) -> None:
        self._directory = run.games
        self._game_name = game_name
        self._writes = writes
        self._exchange = exchange

    def rewind(self, standing: Standing) -> None:
        """Have every host's store hold the standing's games and no others; they are sent where they lack.

        Raises CheckpointError where no host has them.
        """
        exchange = self._exchange
        held = exchange.on_each(lambda: self._open_rewound(standing) if self._writes else "")
        if not standing.num_shards:
            return
        holders = [
            rank for rank, store_id in enumerate(exchange.gather(held)) if store_id == standing.store_id
        ]
        if not holders:
            raise CheckpointError(
                f"{self._directory}: not the games of generation {standing.generation} that the "
                "checkpoint learned from; expected them, or --fresh-start",
                found_by_all_ranks=True,
            )
        self._send(holders[0], standing.num_shards, lacks=self._writes and held != standing.store_id)

    def append(self, rows: pa.RecordBatch) -> None:
        """One more shard, on every host; none where there are no rows."""

        def append() -> None:
            if self._writes and rows.num_rows:
                self._store.append(rows)

        self._exchange.on_each(append)  # returns when all hosts have it

    def open(self) -> GameStore:
        """The store as it is now."""
        return GameStore.open(self._directory)

    def newest(self, num_positions: int) -> Window:
        """The newest games, with about as many positions."""
        return newest_games(self.open(), num_positions)

    def _open_rewound(self, standing: Standing) -> str:
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
            content = exchange.bytes_from(source, self._shard(number) if exchange.rank == source else b"")
            if lacks:
                self._store.append_shard(content)

    def _shard(self, number: int) -> bytes:
        assert self._store.manifest is not None
        return (self._directory / self._store.manifest.shards[number].name).read_bytes()
