"""Evaluations of the games of a shard, as annotations and engines' comments gave them: columns as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero.data.store.arrow_views import buffer_values
from alphazero.data.store.schema import PLY_NOTES

_COLUMNS = {"eval_cp": np.int32, "eval_mate": np.int16, "eval_source": np.uint8}

CoreNotes: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[Any], npt.NDArray[np.uint8]]


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


@dataclass(frozen=True)
class EvaluationView:
    """Evaluations of the plies of a shard's games: PLY_NOTES of schema.py says what they are."""

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
    views = {name: _note_view(batch, name, dtype) for name, dtype in _COLUMNS.items()}
    return EvaluationView(views["eval_cp"], views["eval_mate"], views["eval_source"])


def _note_view(batch: pa.RecordBatch, name: str, dtype: npt.DTypeLike) -> NoteView:
    no_bits = np.zeros(0, np.uint8)
    if name not in batch.schema.names:
        return NoteView(np.zeros(batch.num_rows + 1, np.int32), np.zeros(0, dtype), no_bits)
    assert name in PLY_NOTES
    column: Any = batch.column(name)
    buffers = column.buffers()
    offset = buffer_values(buffers[1], np.int32, batch.num_rows + 1)
    if offset[0] != 0 or np.any(np.diff(offset) < 0):
        raise ValueError(f"offsets of {name} do not ascend from 0")
    count = int(offset[-1])
    bits = no_bits if buffers[2] is None else buffer_values(buffers[2], np.uint8, (count + 7) // 8)
    return NoteView(offset, buffer_values(buffers[3], dtype, count), bits)
