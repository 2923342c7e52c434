"""Numpy views of the columns of an Arrow record batch, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class ListView:
    """A column of lists, G rows: row g is values[offset[g]:offset[g + 1]], a null row is empty."""

    offset: npt.NDArray[np.int32]
    values: npt.NDArray[Any]


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
    offset = buffer_values(buffers[1], np.int32, batch.num_rows + 1)
    if offset[0] != 0 or np.any(np.diff(offset) < 0):
        raise ValueError(f"offsets of {name} do not ascend from 0")
    if buffers[2] is not None and column.values.null_count:
        raise ValueError(f"{column.values.null_count} null entries in the lists of {name}")
    if column.null_count and np.any(np.diff(offset)[~validity(column)] != 0):
        raise ValueError(f"a null list of {name} has entries")
    return ListView(offset, buffer_values(buffers[3], dtype, int(offset[-1])))
