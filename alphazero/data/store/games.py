"""Games of a store one by one: each column of a row as an array, for those who write games to files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from alphazero.data.store.store import GameStore, ShardView


@dataclass(frozen=True)
class GameRow:
    """One row: `values` has texts and numbers by column, `lists` arrays (views, where no entry is null)."""

    shard: ShardView
    row: int
    values: dict[str, Any]
    lists: dict[str, npt.NDArray[Any]]

    @property
    def is_searched(self) -> bool:
        """A search made it."""
        return "flags" in self.lists

    @property
    def location(self) -> str:
        """For messages."""
        return f"{self.shard.path}: game {self.row}"


def games_of(store: GameStore, first: int = 0, count: int | None = None) -> Iterator[GameRow]:
    """Games `first` ... of a store in its order, `count` of them or all; what is null is left out."""
    left = store.num_games if count is None else count
    for shard in store.shards:
        begin = min(first, shard.num_games)
        first -= begin
        end = min(shard.num_games, begin + left)
        left -= end - begin
        if begin < end:
            yield from _rows(shard, begin, end)


def _rows(shard: ShardView, begin: int, end: int) -> Iterator[GameRow]:
    shard.check_size()
    assert shard.batch is not None
    batch = shard.batch.slice(begin, end - begin)
    lists: dict[str, Any] = {}
    values: dict[str, list[Any]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count == batch.num_rows:
            continue
        if kinds.is_list(field.type):
            lists[field.name] = column
        else:
            values[field.name] = column.to_pylist()
    for row in range(batch.num_rows):
        yield GameRow(
            shard,
            begin + row,
            {name: column[row] for name, column in values.items() if column[row] is not None},
            {name: _entries(column, row) for name, column in lists.items() if column[row].is_valid},
        )


def _entries(column: pa.Array[Any], row: int) -> npt.NDArray[Any]:
    entries: Any = cast(Any, column)[row].values
    if entries.null_count:
        return np.array(entries.to_pylist(), object)
    view: npt.NDArray[Any] = entries.to_numpy(zero_copy_only=False)
    return view
