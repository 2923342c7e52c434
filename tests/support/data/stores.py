"""Stores of made-up games: random ones, those with headers and clocks, those that a search made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import alphazero._core as _core
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import SHARD_GAMES, StoreWriter, row_schema

Policy = list[tuple[int, int]]  # moves with their shares of 65535
Row = dict[str, Any]


def row(game: str, moves: Sequence[int], result: int | None, **columns: Any) -> Row:
    """A row of a store without a search."""
    plain = {"game": game, "variant": "standard", "source": "made up", "moves": list(moves), "result": result}
    return {**plain, **columns}


def game(text: str, result: int | None, **columns: Any) -> Row:
    """A row of a game of chess from the usual start, in SAN."""
    return row("chess", moves_of(text), result, **columns)


def moves_of(text: str) -> list[int]:
    """Moves of the usual start, in SAN, as a store has them."""
    position = _core.ChessPosition()
    moves = []
    for san in text.split():
        moves.append(position.parse_san(san))
        position.push(moves[-1])
    return moves


def searched(
    plain: Row,
    flags: Sequence[int],
    policies: Sequence[Policy],
    root_q: Sequence[float],
    root_d: Sequence[float],
) -> Row:
    """The row with what a search knew: a flag, a policy and a value for each ply."""
    offsets = [0]
    for policy in policies:
        offsets.append(offsets[-1] + len(policy))
    return {
        **plain,
        "flags": list(flags),
        "root_q": list(root_q),
        "root_d": list(root_d),
        "best_q": list(root_q),
        "visits": [100] * len(flags),
        "policy_offsets": offsets,
        "policy_move": [move for policy in policies for move, _ in policy],
        "policy_prob": [share for policy in policies for _, share in policy],
        "target_kind": "visits",
    }


def batch(rows: Iterable[Row], columns: Sequence[str] = ()) -> pa.RecordBatch:
    """Rows for a writer, with these columns of version 2."""
    return pa.RecordBatch.from_pylist(list(rows), schema=row_schema(columns))


def grown(path: Path, *shards: Sequence[Row]) -> GameStore:
    """A store that grew by these shards."""
    store = GrowingStore(path, shards[0][0]["game"])
    for rows in shards:
        store.append(batch(rows))
    return GameStore.open(path)


def write_games(path: Path, rows: Iterable[Row], shard_games: int = SHARD_GAMES) -> GameStore:
    """A store of these games of chess with the columns of clocks and time controls."""
    return _written(path, batch(rows, ["clock_ms", "time_control"]), shard_games)


def write_random_store(path: Path, num_games: int, first_seed: int = 0) -> None:
    """Games of random moves, at most 120 plies; results cycle through win, draw, loss."""
    rows = (
        row("chess", _core.chess_random_playout(first_seed + number, 120), (1, 0, -1)[number % 3])
        for number in range(num_games)
    )
    _written(path, batch(rows), SHARD_GAMES)


def _written(path: Path, rows: pa.RecordBatch, shard_games: int) -> GameStore:
    directory = path.with_name(path.name + ".writing")
    directory.mkdir()
    writer = StoreWriter(directory, "chess", shard_games=shard_games)
    writer.append(rows)
    writer.finish(path, [])
    return GameStore.open(path)
