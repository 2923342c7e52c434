"""Games of self-play as Arrow tables: with all that is needed to continue them, and as rows of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.text import reason
from alphazero.data.store.columns import TRAINED_ON
from alphazero.data.store.writer import row_schema, rows_with

# Arrays of a _core.SelfPlayGame, with their element types.
_ARRAYS: dict[str, pa.DataType] = {
    "moves": pa.uint16(),
    "flags": pa.uint8(),
    "root_q": pa.float32(),
    "root_d": pa.float32(),
    "best_q": pa.float32(),
    "best_d": pa.float32(),
    "orig_q": pa.float32(),
    "orig_d": pa.float32(),
    "visits": pa.uint32(),
    "policy_offset": pa.uint32(),
    "policy_move": pa.uint16(),
    "policy_prob": pa.uint16(),
}
_NUMBERS: dict[str, pa.DataType] = {
    "lane": pa.uint64(),
    "number": pa.uint64(),
    "result": pa.int8(),
    "plays_through": pa.bool_(),
    "resign_ply": pa.int32(),
}
_ENUMS = ("end", "termination")
# A game of the core, finished or in progress.
GAME_SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=False) for name, kind in _NUMBERS.items()]
    + [pa.field(name, pa.utf8(), nullable=False) for name in _ENUMS]
    + [
        pa.field(name, pa.list_(pa.field("item", kind, nullable=False)), nullable=False)
        for name, kind in _ARRAYS.items()
    ]
)
# The store has these beside ROW_SCHEMA.
_OF_SEARCH = ("best_d", "orig_q", "orig_d")
STORE_SCHEMA = row_schema(_OF_SEARCH)
_TARGETS = {"puct": "visits", "gumbel": "completed_q"}


def to_batch(games: Sequence[_core.SelfPlayGame]) -> pa.RecordBatch:
    """Games as rows of GAME_SCHEMA, in this order."""
    values = {name: [getattr(game, name) for game in games] for name in GAME_SCHEMA.names}
    for name in _ENUMS:
        values[name] = [value.name for value in values[name]]
    columns = [pa.array(values[field.name], field.type) for field in GAME_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=GAME_SCHEMA)


def from_batch(
    batch: pa.RecordBatch, what: str = "games of self-play", *, under_way: bool = False
) -> list[_core.SelfPlayGame]:
    """The games of `to_batch`; under_way: none of them may be finished.

    Raises DataError, which begins with `what`, where columns are others or do not fit together.
    """
    if not batch.schema.equals(GAME_SCHEMA):
        raise DataError(f"{what}: columns are not those of this version")
    check_fit(batch, what)
    games = []
    for row, values in enumerate(batch.select([*_NUMBERS, *_ENUMS]).to_pylist()):
        game = _core.SelfPlayGame()
        for name in _NUMBERS:
            setattr(game, name, values[name])
        try:
            game.end = _core.GameEnd[values["end"]]
            game.termination = _core.Termination[values["termination"]]
        except KeyError as error:
            raise DataError(f"{what}: row {row}: {error.args[0]!r} ends no game") from error
        if under_way and game.end is not _core.GameEnd.NONE:
            raise DataError(f"{what}: row {row}: the game ended by {game.end.name}; expected one in progress")
        for name in _ARRAYS:
            setattr(game, name, np.array(batch.column(name)[row].values))
        games.append(game)
    return games


def check_fit(batch: pa.RecordBatch, what: str) -> None:
    """Raises DataError unless each game has an entry a ply, an offset more, and policies that these span."""
    for field, column in zip(GAME_SCHEMA, batch.columns, strict=True):
        values: Any = column
        if column.null_count or (field.name in _ARRAYS and values.flatten().null_count):
            raise DataError(f"{what}: column {field.name} has null entries")
    lengths: dict[str, npt.NDArray[np.int64]] = {
        name: pc.list_value_length(batch.column(name)).to_numpy(zero_copy_only=False) for name in _ARRAYS
    }
    plies = lengths["moves"]
    expected = dict.fromkeys(("flags", "root_q", "root_d", "best_q", *_OF_SEARCH, "visits"), plies)
    expected |= {"policy_offset": plies + 1, "policy_prob": lengths["policy_move"]}
    for name, wanted in expected.items():
        wrong = np.flatnonzero(lengths[name] != wanted)
        if len(wrong):
            row = wrong[0]
            raise DataError(
                f"{what}: row {row}: {lengths[name][row]} entries of {name}; expected {wanted[row]}"
            )
    offsets: Any = batch.column("policy_offset")
    values, row_end = offsets.flatten().to_numpy().astype(np.int64), np.cumsum(plies + 1)
    ends_wrong = values[row_end - 1] != lengths["policy_move"]
    ends_wrong |= values[row_end - plies - 1] != 0
    falls = np.flatnonzero(np.diff(values) < 0) + 1  # allowed from a game to the next
    ends_wrong[np.searchsorted(row_end, falls[~np.isin(falls, row_end)], side="right")] = True
    if ends_wrong.any():
        row = np.flatnonzero(ends_wrong)[0]
        raise DataError(f"{what}: row {row}: policy offsets do not fit its policies")


def to_bytes(batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC file in memory; equal games make equal bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_bytes(content: bytes, what: str) -> pa.RecordBatch:
    """The batch of `to_bytes`; `what` names it in the DataError of damaged bytes."""
    try:
        reader = pa.ipc.open_file(pa.py_buffer(content))
        if reader.num_record_batches != 1:
            raise DataError(f"{what}: {reader.num_record_batches} record batches; expected 1")
        batch = reader.get_batch(0)
        batch.validate(full=True)
        return batch
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"{what}: {reason(error)}") from error


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, by lane and number of the game."""
    table = pa.Table.from_batches(list(batches), GAME_SCHEMA).sort_by(
        [("lane", "ascending"), ("number", "ascending")]
    )
    whole = table.combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], GAME_SCHEMA)


def store_rows(batch: pa.RecordBatch, game_name: str, algorithm: str, event: str) -> pa.RecordBatch:
    """Finished games as rows of the game store (STORE_SCHEMA). event: why they were played."""
    num_rows = batch.num_rows
    end, rules = batch.column("end"), pa.scalar("RULES")
    ended: Any = pc.if_else(pc.equal(end, rules), batch.column("termination"), end)
    columns: dict[str, pa.Array[Any]] = {
        "game": pa.repeat(game_name, num_rows),
        "variant": pa.repeat("standard", num_rows),
        "result": batch.column("result"),
        "termination": pc.utf8_lower(ended),
        "event": pa.repeat(event, num_rows),
        "source": pa.repeat("self-play", num_rows),
        "policy_offsets": batch.column("policy_offset"),
        "target_kind": pa.repeat(_TARGETS[algorithm], num_rows),
    }
    searched = ("flags", "root_q", "root_d", "best_q", *_OF_SEARCH, "visits", "policy_move", "policy_prob")
    columns |= {name: batch.column(name) for name in ("moves", *searched)}
    cast = {name: column.cast(STORE_SCHEMA.field(name).type) for name, column in columns.items()}
    return rows_with(STORE_SCHEMA, cast, 0, num_rows)


def entries(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """What a column of arrays holds, over all games."""
    lists: Any = batch.column(name)
    values: npt.NDArray[Any] = lists.flatten().to_numpy(zero_copy_only=False)
    return values


def num_trained_positions(batch: pa.RecordBatch) -> int:
    """Plies with a full search over all games."""
    return int(np.count_nonzero(entries(batch, "flags") & TRAINED_ON))
