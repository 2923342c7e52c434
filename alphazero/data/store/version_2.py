"""What must hold of the columns of version 2: an entry for each ply, or none; values within their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from alphazero.data.store.arrow_views import buffer_values, list_view, validity
from alphazero.data.store.schema import PLY_NOTES, SEARCH_NUMBERS, VERSION_2_FIELDS

_TOLERANCE = 1e-4  # of a value beyond its bounds, as in search_columns.py
_BOUNDS = {"q": (-1.0, 1.0), "d": (0.0, 1.0)}  # by the end of the name
MOST_EVAL_SOURCE = 3  # docs/data_format.md lists them


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
