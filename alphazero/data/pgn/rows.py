"""Parsed PGN games as rows of the store."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero import _core
from alphazero.data.store.schema import PLY_NOTES
from alphazero.data.store.writer import ROW_SCHEMA, row_schema

GAME = "chess"
STANDARD = "standard"
CHESS960 = "chess960"


class _Notes(Protocol):
    """A column of the core with a list for each game, which may be null, and an entry for each ply."""

    @property
    def value(self) -> npt.NDArray[Any]: ...

    @property
    def valid(self) -> npt.NDArray[np.uint8]: ...

    @property
    def offset(self) -> npt.NDArray[np.int32]: ...

    @property
    def list_valid(self) -> npt.NDArray[np.uint8]: ...


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


def _lists(kind: pa.DataType, notes: _Notes) -> pa.Array[Any]:
    return pa.Array.from_buffers(
        pa.list_(kind),
        len(notes.list_valid),
        [_validity(notes.list_valid), _buffer(notes.offset)],
        children=[_fixed(kind, notes.value, notes.valid)],
    )


def _version_2_columns(games: _core.PgnGames) -> dict[str, pa.Array[Any]]:
    """Those of which the games say anything."""
    columns: dict[str, pa.Array[Any]] = {}
    for name, kind in PLY_NOTES.items():
        notes: _Notes = getattr(games, name)
        if len(notes.value):
            columns[name] = _lists(kind, notes)
    if np.any(games.time_control.valid):
        columns["time_control"] = _text(games.time_control)
    return columns


def _part(column: pa.Array[Any], begin: int, num_rows: int) -> pa.Array[Any]:
    return column if len(column) == num_rows else column.slice(begin, num_rows)


def rows_of(games: _core.PgnGames, source_name: str, begin: int, end: int) -> pa.RecordBatch:
    """Parsed games begin ... end - 1 as rows (row_schema); most columns are views, no move is copied."""
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
    further = _version_2_columns(games)
    columns |= further
    schema = row_schema(further)
    in_order = [
        _part(columns[field.name], begin, num_rows)
        if field.name in columns
        else pa.nulls(num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(in_order, schema=schema)
