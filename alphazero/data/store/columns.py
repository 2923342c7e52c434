"""Columns of a shard as arrays: lists, what searches and comments say of each ply, and their checks.

The arrays are views of an Arrow record batch; nothing is copied unless a docstring states it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero.data.store.schema import PLY_NOTES, SEARCH_NUMBERS, VERSION_2_FIELDS

TRAINED_ON = 1  # bit of flags: the ply got a full search and is a sample (csrc/search/self_play.hpp)
MOST_EVAL_SOURCE = 3  # docs/data_format.md lists them

_A_PLY = {
    "flags": np.uint8,
    "root_q": np.float32,
    "root_d": np.float32,
    "best_q": np.float32,
    "visits": np.uint32,
}
_OF_POLICIES = {"policy_offsets": np.uint32, "policy_move": np.uint16, "policy_prob": np.uint16}
_OF_EVALUATIONS = {"eval_cp": np.int32, "eval_mate": np.int16, "eval_source": np.uint8}
_BOUNDS = {"q": (-1.0, 1.0), "d": (0.0, 1.0)}  # by the end of a column's name
_TOLERANCE = 1e-4  # of a value beyond its bounds: float32 sums of three shares

CoreSearchArrays: TypeAlias = tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint32],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
]
CoreNotes: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[Any], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class ListView:
    """A column of lists, G rows: row g is values[offset[g]:offset[g + 1]], a null row is empty."""

    offset: npt.NDArray[np.int32]
    values: npt.NDArray[Any]


@dataclass(frozen=True)
class NoteView:
    """A column of lists whose entries may be null; views, nothing is copied.

    Game g owns values[offset[g]:offset[g + 1]], an entry a ply or none at all. bits: bit i (from the lowest
    of each byte) is set where entry i is not null; empty where none is.
    """

    offset: npt.NDArray[np.int32]
    values: npt.NDArray[Any]
    bits: npt.NDArray[np.uint8]

    def entries(
        self, game: npt.NDArray[np.integer[Any]], ply: npt.NDArray[np.integer[Any]]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
        """Of plies of games: bool, is it known, and the values, which mean nothing where it is not."""
        begin = self.offset[game].astype(np.int64)
        known = self.offset[game + 1] > begin
        if not len(self.values):
            return known, np.zeros(len(known), self.values.dtype)
        place = np.where(known, begin + ply, 0)
        if len(self.bits):
            known &= (self.bits[place >> 3] >> (place & 7).astype(np.uint8) & 1) != 0
        return known, self.values[place]


def buffer_values(buffer: pa.Buffer | None, dtype: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
    """The first `count` values of a buffer; raises ValueError where it holds fewer."""
    if buffer is None or count == 0:
        return np.zeros(count, dtype)
    return np.frombuffer(memoryview(buffer), np.dtype(dtype), count)


def validity(array: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """bool [rows]: false where null. A copy: a byte a row for Arrow's bit."""
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(memoryview(bitmap), np.uint8)
    return np.unpackbits(bits, count=len(array), bitorder="little").astype(np.bool_)


def list_view(batch: pa.RecordBatch, name: str, dtype: npt.DTypeLike) -> ListView:
    """A column of lists of numbers. Raises ValueError where its offsets or its values are damaged."""
    column: Any = batch.column(name)
    buffers = column.buffers()
    offset = _list_offset(batch, name)
    if buffers[2] is not None and column.values.null_count:
        raise ValueError(f"{column.values.null_count} null entries in the lists of {name}")
    if column.null_count and np.any(np.diff(offset)[~validity(column)] != 0):
        raise ValueError(f"a null list of {name} has entries")
    return ListView(offset, buffer_values(buffers[3], dtype, int(offset[-1])))


def _list_offset(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int32]:
    offset = buffer_values(batch.column(name).buffers()[1], np.int32, batch.num_rows + 1)
    if offset[0] != 0 or np.any(np.diff(offset) < 0):
        raise ValueError(f"offsets of {name} do not ascend from 0")
    return offset


@dataclass(frozen=True)
class SearchView:
    """What searches knew of the plies of a shard's G games; views, nothing is copied.

    A game that no search made has no entries. Game g owns [ply_offset[g], ply_offset[g + 1]) of flags,
    root_q, root_d, best_q and visits, an entry a ply, and likewise of policy_offset and of policy_move and
    policy_prob: its ply i has the moves [policy_offset[i], policy_offset[i + 1]) of that part. Element
    types as in SCHEMA, offsets i32 [G + 1].
    """

    ply_offset: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]
    root_q: npt.NDArray[np.float32]
    root_d: npt.NDArray[np.float32]
    best_q: npt.NDArray[np.float32]
    visits: npt.NDArray[np.uint32]
    policy_offset_offset: npt.NDArray[np.int32]
    policy_offset: npt.NDArray[np.uint32]
    policy_move_offset: npt.NDArray[np.int32]
    policy_move: npt.NDArray[np.uint16]
    policy_prob: npt.NDArray[np.uint16]

    def core_arrays(self) -> CoreSearchArrays:
        """What csrc/data/shard_columns.hpp's SearchColumns takes, in its order."""
        return (
            self.ply_offset,
            self.root_q,
            self.root_d,
            self.policy_offset_offset,
            self.policy_offset,
            self.policy_move_offset,
            self.policy_move,
            self.policy_prob,
        )

    @property
    def is_trained_on(self) -> npt.NDArray[np.bool_]:
        """bool [plies of all searched games]: samples."""
        trained_on: npt.NDArray[np.bool_] = (self.flags & TRAINED_ON) != 0
        return trained_on


def search_view(batch: pa.RecordBatch, moves_offset: npt.NDArray[np.int32]) -> SearchView | None:
    """The search columns of a shard; None where no search made any of its games.

    moves_offset: of its games. Raises ValueError where the columns do not fit each other or the games.
    """
    if all(batch.column(name).null_count == batch.num_rows for name in (*_A_PLY, *_OF_POLICIES)):
        return None
    columns = {name: list_view(batch, name, dtype) for name, dtype in (_A_PLY | _OF_POLICIES).items()}
    _check_lengths(columns, moves_offset)
    return SearchView(
        ply_offset=columns["flags"].offset,
        flags=columns["flags"].values,
        root_q=columns["root_q"].values,
        root_d=columns["root_d"].values,
        best_q=columns["best_q"].values,
        visits=columns["visits"].values,
        policy_offset_offset=columns["policy_offsets"].offset,
        policy_offset=columns["policy_offsets"].values,
        policy_move_offset=columns["policy_move"].offset,
        policy_move=columns["policy_move"].values,
        policy_prob=columns["policy_prob"].values,
    )


def _check_lengths(columns: dict[str, ListView], moves_offset: npt.NDArray[np.int32]) -> None:
    """A searched game has an entry a ply, a policy offset more, and as many shares as moves of policies."""
    plies = np.diff(moves_offset)
    is_searched = np.diff(columns["flags"].offset) > 0

    def expect(name: str, wanted: npt.NDArray[Any], where: npt.NDArray[np.bool_]) -> None:
        found = np.diff(columns[name].offset)
        wrong = np.flatnonzero(where & (found != wanted))
        if len(wrong):
            game = wrong[0]
            raise ValueError(f"game {game}: {found[game]} entries of {name}; expected {wanted[game]}")

    for name in _A_PLY:
        expect(name, plies * is_searched, np.ones_like(is_searched))
    expect("policy_offsets", plies + 1, is_searched)
    expect("policy_move", np.zeros_like(plies), ~is_searched)
    expect("policy_prob", np.diff(columns["policy_move"].offset), np.ones_like(is_searched))


def check_values(view: SearchView) -> None:
    """Values lie within their bounds; reads all of them. Raises ValueError."""
    for name, values in (("root_q", view.root_q), ("best_q", view.best_q), ("root_d", view.root_d)):
        low, high = _BOUNDS[name[-1]]
        outside = np.flatnonzero(~((values >= low - _TOLERANCE) & (values <= high + _TOLERANCE)))  # NaN too
        if len(outside):
            game = int(np.searchsorted(view.ply_offset, outside[0], side="right")) - 1
            ply = outside[0] - view.ply_offset[game]
            raise ValueError(f"game {game}, ply {ply}: {name} {values[outside[0]]}; expected {low:g} to 1")


@dataclass(frozen=True)
class EvaluationView:
    """Evaluations of the plies of a shard's games: PLY_NOTES of schema.py describes them."""

    cp: NoteView
    mate: NoteView
    source: NoteView

    def core_arrays(self) -> tuple[CoreNotes, CoreNotes, CoreNotes]:
        """What csrc/data/shard_columns.hpp's EvalColumns takes, in its order."""
        return (
            (self.cp.offset, self.cp.values, self.cp.bits),
            (self.mate.offset, self.mate.values, self.mate.bits),
            (self.source.offset, self.source.values, self.source.bits),
        )


def evaluation_view(batch: pa.RecordBatch) -> EvaluationView | None:
    """The evaluations of a shard; None where it has none. Raises ValueError where the columns are damaged."""
    if not any(name in batch.schema.names for name in ("eval_cp", "eval_mate")):
        return None
    views = {name: _note_view(batch, name, dtype) for name, dtype in _OF_EVALUATIONS.items()}
    return EvaluationView(views["eval_cp"], views["eval_mate"], views["eval_source"])


def _note_view(batch: pa.RecordBatch, name: str, dtype: npt.DTypeLike) -> NoteView:
    no_bits = np.zeros(0, np.uint8)
    if name not in batch.schema.names:
        return NoteView(np.zeros(batch.num_rows + 1, np.int32), np.zeros(0, dtype), no_bits)
    buffers = batch.column(name).buffers()
    offset = _list_offset(batch, name)
    count = int(offset[-1])
    bits = no_bits if buffers[2] is None else buffer_values(buffers[2], np.uint8, (count + 7) // 8)
    return NoteView(offset, buffer_values(buffers[3], dtype, count), bits)


def check_note_lengths(batch: pa.RecordBatch, moves_offset: npt.NDArray[np.int32]) -> None:
    """Each list has as many entries as its game has plies, or is null. Raises ValueError.

    moves_offset: of the shard's games. Nothing but offsets is read.
    """
    plies = np.diff(moves_offset)
    for field in VERSION_2_FIELDS:
        if field.name not in batch.schema.names or not pa.types.is_list(field.type):
            continue
        column: Any = batch.column(field.name)
        if field.name not in PLY_NOTES:
            offset = list_view(batch, field.name, field.type.value_type.to_pandas_dtype()).offset
        else:
            offset = buffer_values(column.buffers()[1], np.int32, batch.num_rows + 1)
        found = np.diff(offset)
        wrong = np.flatnonzero(found != np.where(validity(column), plies, 0))
        if len(wrong):
            game = wrong[0]
            raise ValueError(f"game {game}: {found[game]} entries of {field.name}; expected {plies[game]}")


def check_notes(batch: pa.RecordBatch) -> None:
    """Values lie within their bounds or are not known; reads all of them. Raises ValueError."""
    for name in SEARCH_NUMBERS:
        if name not in batch.schema.names:
            continue
        view = list_view(batch, name, np.float32)
        low, high = _BOUNDS.get(name.rpartition("_")[2], (-np.inf, np.inf))
        values = view.values[~np.isnan(view.values)]
        outside = values[(values < low - _TOLERANCE) | (values > high + _TOLERANCE) | np.isinf(values)]
        if len(outside):
            expected = f"{low:g} to {high:g}" if np.isfinite(low) else "a finite number"
            raise ValueError(f"{name} {outside[0]}; expected {expected}")
    if "eval_source" in batch.schema.names:
        sources: Any = batch.column("eval_source")
        codes = sources.flatten().drop_null().to_numpy()
        if len(codes) and codes.max() > MOST_EVAL_SOURCE:
            raise ValueError(f"eval_source {codes.max()}; expected 0 to {MOST_EVAL_SOURCE}")
