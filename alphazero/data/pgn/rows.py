"""Parsed PGN games as rows of the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero import _core
from alphazero.data.store.writer import ROW_SCHEMA

GAME = "chess"
STANDARD = "standard"
CHESS960 = "chess960"


def _buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(values.data)


def _validity(valid: npt.NDArray[np.uint8]) -> pa.Buffer:
    return _buffer(np.packbits(valid, bitorder="little"))


def _text(column: _core.PgnText) -> pa.Array[Any]:
    num_rows = len(column.valid)
    return pa.StringArray.from_buffers(
        num_rows,
        _buffer(column.offset),
        _buffer(column.bytes),
        _validity(column.valid),
        num_rows - int(np.count_nonzero(column.valid)),
    )


def _fixed(kind: pa.DataType, values: npt.NDArray[Any], valid: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, len(values), [_validity(valid), _buffer(values)])


def _part(column: pa.Array[Any], begin: int, num_rows: int) -> pa.Array[Any]:
    return column if len(column) == num_rows else column.slice(begin, num_rows)


def rows_of(games: _core.PgnGames, source_name: str, begin: int, end: int) -> pa.RecordBatch:
    """Parsed games begin ... end - 1 as rows (ROW_SCHEMA); most columns are views, no move is copied."""
    num_games, num_rows = len(games.result), end - begin
    moves = pa.Array.from_buffers(
        ROW_SCHEMA.field("moves").type,
        num_games,
        [None, _buffer(games.moves_offset)],
        children=[pa.array(games.moves)],
    )
    columns: dict[str, pa.Array[Any]] = {
        "game": pa.repeat(GAME, num_rows),
        "variant": pa.array(np.where(games.is_chess960[begin:end], CHESS960, STANDARD), pa.utf8()),
        "start_fen": _text(games.start_fen),
        "moves": moves,
        "result": _fixed(pa.int8(), games.result, games.result_valid),
        "termination": _text(games.termination),
        "white": _text(games.white),
        "black": _text(games.black),
        "white_elo": _fixed(pa.int32(), games.white_elo.value, games.white_elo.valid),
        "black_elo": _fixed(pa.int32(), games.black_elo.value, games.black_elo.valid),
        "event": _text(games.event),
        "date": _text(games.date),
        "source": pa.repeat(source_name, num_rows),
    }
    in_order = [
        _part(columns[field.name], begin, num_rows)
        if field.name in columns
        else pa.nulls(num_rows, field.type)
        for field in ROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(in_order, schema=ROW_SCHEMA)
