"""Columns of a shard as arrays: lists, what searches and comments say of each ply, and their checks.

The arrays are views of an Arrow record batch; nothing is copied unless a docstring states it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero.data.store.schema import PLY_NOTES, SEARCH_NUMBERS, VERSION_2_FIELDS

TRAINED_ON = 1  # bit of flags: the ply got a full search and is a sample (csrc/search/self_play.hpp)
MOST_EVAL_SOURCE = 3  # docs/data_format.md lists them

_BOUNDS = {"q": (-1.0, 1.0), "d": (0.0, 1.0)}  # by the end of a column's name
_TOLERANCE = 1e-4  # of a value beyond its bounds: float32 sums of three shares


class ListView(NamedTuple):
    """A column of lists, G rows: row g is values[offset[g]:offset[g + 1]], a null row is empty.

    bits: of lists whose entries may be null: bit i (from the lowest of each byte) is set where entry i is
    not; empty where none is.
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
        index = np.where(known, begin + ply, 0)
        if len(self.bits):
            known &= (self.bits[index >> 3] >> (index & 7).astype(np.uint8) & 1) != 0
        return known, self.values[index]


def buffer_values(buffer: pa.Buffer | None, dtype: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
    """The first `count` values of a buffer; raises ValueError where it holds fewer."""
    if buffer is None or count == 0:
        return np.zeros(count, dtype)
    return np.frombuffer(memoryview(buffer), np.dtype(dtype), count)


def validity(array: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """bool [rows]: false where null."""
    is_valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return is_valid


def list_view(batch: pa.RecordBatch, name: str, *, nullable: bool = False) -> ListView:
    """A column of lists of numbers. Raises ValueError where its offsets or its values are damaged.

    nullable: their entries may be null.
    """
    column: Any = batch.column(name)
    _, offsets, validity_bits, values = column.buffers()
    offset = buffer_values(offsets, np.int32, batch.num_rows + 1)
    if offset[0] != 0 or np.any(np.diff(offset) < 0):
        raise ValueError(f"offsets of {name} do not ascend from 0")
    count = int(offset[-1])
    bits = np.zeros(0, np.uint8)
    if nullable:
        if validity_bits is not None:
            bits = buffer_values(validity_bits, np.uint8, (count + 7) // 8)
    elif validity_bits is not None and column.values.null_count:
        raise ValueError(f"{column.values.null_count} null entries in the lists of {name}")
    elif column.null_count and np.any(np.diff(offset)[~validity(column)] != 0):
        raise ValueError(f"a null list of {name} has entries")
    return ListView(offset, buffer_values(values, column.type.value_type.to_pandas_dtype(), count), bits)


def _expect_entries(
    name: str, view: ListView, wanted: npt.NDArray[Any], where: npt.NDArray[np.bool_] | bool = True
) -> None:
    """Raises ValueError unless the list of each game has so many entries."""
    counts = np.diff(view.offset)
    wrong = np.flatnonzero((counts != wanted) & where)
    if len(wrong):
        game = wrong[0]
        raise ValueError(f"game {game}: {counts[game]} entries of {name}; expected {wanted[game]}")


@dataclass(frozen=True)
class SearchView:
    """What searches knew of the plies of a shard's G games, by column: views, nothing is copied.

    A game that no search made has no entries. flags, root_q, root_d, best_q and visits have an entry a ply.
    policy_offsets has one more: ply i of a game has the moves [policy_offsets[i], policy_offsets[i + 1]) of
    the game's part of policy_move and policy_prob.
    """

    flags: ListView
    root_q: ListView
    root_d: ListView
    best_q: ListView
    visits: ListView
    policy_offsets: ListView
    policy_move: ListView
    policy_prob: ListView

    def core_arrays(self) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
        """What csrc/data/shard_columns.hpp's SearchColumns takes, in its order."""
        return (
            self.ply_offset,
            self.root_q.values,
            self.root_d.values,
            self.policy_offsets.offset,
            self.policy_offsets.values,
            self.policy_move.offset,
            self.policy_move.values,
            self.policy_prob.values,
        )

    @property
    def ply_offset(self) -> npt.NDArray[np.int32]:
        """i32 [G + 1]: where the plies of each game begin."""
        return self.flags.offset

    @property
    def is_trained_on(self) -> npt.NDArray[np.bool_]:
        """bool [plies of all searched games]: samples."""
        trained_on: npt.NDArray[np.bool_] = (self.flags.values & TRAINED_ON) != 0
        return trained_on


def search_view(batch: pa.RecordBatch, moves_offset: npt.NDArray[np.int32]) -> SearchView | None:
    """The search columns of a shard; None where no search made any of its games.

    moves_offset: of its games. Raises ValueError where the columns do not fit each other or the games.
    """
    names = [column.name for column in fields(SearchView)]
    if all(batch.column(name).null_count == batch.num_rows for name in names):
        return None
    views = {name: list_view(batch, name) for name in names}
    plies = np.diff(moves_offset)
    is_searched = np.diff(views["flags"].offset) > 0
    for name in ("flags", "root_q", "root_d", "best_q", "visits"):
        _expect_entries(name, views[name], plies * is_searched)
    _expect_entries("policy_offsets", views["policy_offsets"], plies + 1, is_searched)
    _expect_entries("policy_move", views["policy_move"], np.zeros_like(plies), ~is_searched)
    _expect_entries("policy_prob", views["policy_prob"], np.diff(views["policy_move"].offset))
    return SearchView(**views)


class EvaluationView(NamedTuple):
    """Evaluations of the plies of a shard's games: PLY_NOTES of schema.py describes them.

    csrc/data/shard_columns.hpp's EvalColumns takes them in this order.
    """

    cp: ListView
    mate: ListView
    source: ListView


def evaluation_view(batch: pa.RecordBatch) -> EvaluationView | None:
    """The evaluations of a shard; None where it has none. Raises ValueError where the columns are damaged."""
    if not any(name in batch.schema.names for name in ("eval_cp", "eval_mate")):
        return None
    return EvaluationView(*(_note_view(batch, name) for name in ("eval_cp", "eval_mate", "eval_source")))


def _note_view(batch: pa.RecordBatch, name: str) -> ListView:
    if name in batch.schema.names:
        return list_view(batch, name, nullable=True)
    no_values = np.zeros(0, PLY_NOTES[name].to_pandas_dtype())
    return ListView(np.zeros(batch.num_rows + 1, np.int32), no_values, np.zeros(0, np.uint8))


def check_note_lengths(batch: pa.RecordBatch, moves_offset: npt.NDArray[np.int32]) -> None:
    """Each list has as many entries as its game has plies, or is null. Raises ValueError.

    moves_offset: of the shard's games. Nothing but offsets is read.
    """
    plies = np.diff(moves_offset)
    for field in VERSION_2_FIELDS:
        if field.name in batch.schema.names and pa.types.is_list(field.type):
            view = list_view(batch, field.name, nullable=field.name in PLY_NOTES)
            wanted = np.where(validity(batch.column(field.name)), plies, 0)
            _expect_entries(field.name, view, wanted)


def check_values(batch: pa.RecordBatch) -> None:
    """Numbers lie within their bounds, or are not known where they need not be; reads all of them.

    Raises ValueError.
    """
    for name in ("root_q", "best_q", "root_d", *SEARCH_NUMBERS):
        if name not in batch.schema.names:
            continue
        offset, values, _ = list_view(batch, name)
        low, high = _BOUNDS.get(name.rpartition("_")[2], (-np.inf, np.inf))
        is_sound = (values >= low - _TOLERANCE) & (values <= high + _TOLERANCE) & ~np.isinf(values)
        if name in SEARCH_NUMBERS:
            is_sound |= np.isnan(values)
        outside = np.flatnonzero(~is_sound)
        if len(outside):
            game = int(np.searchsorted(offset, outside[0], side="right")) - 1
            expected = f"{low:g} to {high:g}" if np.isfinite(low) else "a finite number"
            raise ValueError(
                f"game {game}, ply {outside[0] - offset[game]}: {name} {values[outside[0]]};"
                f" expected {expected}"
            )
    if "eval_source" in batch.schema.names:
        sources: Any = batch.column("eval_source")
        codes = sources.flatten().drop_null().to_numpy()
        if len(codes) and codes.max() > MOST_EVAL_SOURCE:
            raise ValueError(f"eval_source {codes.max()}; expected 0 to {MOST_EVAL_SOURCE}")
