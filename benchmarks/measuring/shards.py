"""Games made up in memory, as a shard of a store has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from alphazero.data.sampling.window import Window
from alphazero.data.store.schema import SCHEMA, schema_with
from alphazero.data.store.store import view_of


def window_of(columns: Mapping[str, pa.Array[Any]], num_shards: int = 1) -> Window:
    """Games of chess with these columns, the same in every shard."""
    schema = schema_with(name for name in columns if name not in SCHEMA.names)
    num_games = len(columns["moves"])
    in_order = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(num_games, field.type)
        for field in schema
    ]
    view = view_of(pa.RecordBatch.from_arrays(in_order, schema=schema), Path("made up"))
    return Window.of_shards("chess", [view] * num_shards, list(map(str, range(num_shards))))
