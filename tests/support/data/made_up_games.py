"""Stores of made-up chess games with the headers and clocks that filters look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import alphazero._core as _core
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import row_schema
from tests.support.data.random_store import write_rows


def moves_of(text: str) -> list[int]:
    """Moves of the usual start, in SAN, as a store has them."""
    position = _core.ChessPosition()
    moves = []
    for san in text.split():
        moves.append(position.parse_san(san))
        position.push(moves[-1])
    return moves


def game(text: str, result: int | None, **columns: Any) -> dict[str, Any]:
    """A row of a store: the moves in SAN, and what else is to stand in columns."""
    row = {"game": "chess", "variant": "standard", "source": "made up", "result": result, **columns}
    return {**row, "moves": moves_of(text)}


def write_games(path: Path, rows: Sequence[dict[str, Any]], shard_games: int = 1000) -> GameStore:
    """A store of these rows with the columns of clocks and time controls."""
    schema = row_schema(["clock_ms", "time_control"])
    write_rows(path, pa.RecordBatch.from_pylist(list(rows), schema=schema), shard_games)
    return GameStore.open(path)
