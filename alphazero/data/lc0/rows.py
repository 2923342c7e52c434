"""Games of lc0's training data as rows of the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero import _core
from alphazero.data.lc0.stream import Lc0Chunk
from alphazero.data.store.writer import row_schema

GAME = "chess"
TARGET_KIND = "visits"
_V7 = 7
# What the store's column `termination` says of an end; None: it is not known.
TERMINATION: dict[_core.Lc0End, str | None] = {
    _core.Lc0End.UNKNOWN: None,
    _core.Lc0End.WIN: "win",
    _core.Lc0End.STALEMATE: "stalemate",
    _core.Lc0End.REPETITION: "repetition",
    _core.Lc0End.FIFTY_MOVES: "fifty_moves",
    _core.Lc0End.INSUFFICIENT_MATERIAL: "insufficient_material",
    _core.Lc0End.ADJUDICATED: "adjudicated",
    _core.Lc0End.TOO_LONG: "too_long",
}
_OF_V7 = "d_st"
_NUMBERS = tuple(name for name in _core.lc0_number_names() if name != _OF_V7)
_SCHEMA = row_schema([*_NUMBERS, _OF_V7, "best_move"])


def rows_of(chunk: Lc0Chunk, source_name: str, begin: int, end: int) -> pa.RecordBatch:
    """Games begin ... end - 1 of a chunk as rows (row_schema); no move and no number is copied.

    source_name: of the archive or directory; the chunk has the names of its files.
    """
    games = chunk.games
    lists: dict[str, tuple[npt.NDArray[np.int32], npt.NDArray[Any]]] = {
        name: (games.moves_offset, getattr(games, name))
        for name in ("moves", "flags", "root_q", "root_d", "best_q", "visits", "best_move")
    }
    lists |= {name: (games.moves_offset, games.number(name)) for name in _NUMBERS}
    per_game = np.arange(len(games.moves_offset), dtype=np.int32)
    lists["policy_offsets"] = (games.moves_offset + per_game, games.policy_offset)
    lists["policy_move"] = (games.policy_part_offset, games.policy_move)
    lists["policy_prob"] = (games.policy_part_offset, games.policy_prob)
    num_rows, schema = end - begin, _SCHEMA
    columns: dict[str, pa.Array[Any]] = {
        name: _lists(schema.field(name).type, offset, values).slice(begin, num_rows)
        for name, (offset, values) in lists.items()
    }
    ends = [TERMINATION[_core.Lc0End(code)] for code in games.end[begin:end].tolist()]
    columns |= {
        "game": pa.repeat(GAME, num_rows),
        "variant": pa.repeat("standard", num_rows),
        "start_fen": _starts(games).slice(begin, num_rows),
        "result": pa.array(games.result[begin:end]),
        _OF_V7: _of_v7(games, schema.field(_OF_V7).type).slice(begin, num_rows),
        "termination": pa.array(ends, pa.utf8()),
        "source": pa.array(chunk.sources[begin:end], pa.utf8()),
        "target_kind": pa.repeat(TARGET_KIND, num_rows),
    }
    in_order = [
        columns[field.name] if field.name in columns else pa.nulls(num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(in_order, schema=schema)


def _lists(kind: pa.DataType, offset: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> pa.Array[Any]:
    return pa.Array.from_buffers(
        kind, len(offset) - 1, [None, pa.py_buffer(offset.data)], children=[pa.array(values)]
    )


def _of_v7(games: _core.Lc0Games, kind: pa.DataType) -> pa.Array[Any]:
    """The number that V7 alone has; null for games of V6."""
    is_v7 = games.version == _V7
    plies = np.diff(games.moves_offset)
    offset = np.concatenate([[0], np.cumsum(plies * is_v7)]).astype(np.int32)
    values = games.number(_OF_V7)[np.repeat(is_v7, plies)]
    validity = pa.py_buffer(np.packbits(is_v7, bitorder="little").data)
    return pa.Array.from_buffers(
        kind, len(plies), [validity, pa.py_buffer(offset.data)], children=[pa.array(values)]
    )


def _starts(games: _core.Lc0Games) -> pa.Array[Any]:
    """First positions; null for the standard start."""
    is_other = np.diff(games.fen_offset) > 0
    validity = pa.py_buffer(np.packbits(is_other, bitorder="little").data)
    return pa.StringArray.from_buffers(
        len(is_other),
        pa.py_buffer(games.fen_offset.data),
        pa.py_buffer(games.fen_bytes.data),
        validity,
        int(np.count_nonzero(~is_other)),
    )
