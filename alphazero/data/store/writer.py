"""Writing a game store: rows in, immutable shards out, the manifest last, the whole renamed into place.

Where a shard ends depends on the rows alone, so that equal rows make equal bytes however they arrive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from alphazero.base.errors import DataError
from alphazero.base.files import fsync_directory, replacing, sha256_of
from alphazero.base.text import reason
from alphazero.data.store.schema import (
    OLDEST_VERSION,
    SCHEMA,
    as_rows,
    schema_with,
    version_of,
)
from alphazero.data.store.store import (
    MANIFEST_NAME,
    QUARANTINE_NAME,
    Manifest,
    QuarantineEntry,
    ShardEntry,
    SourceEntry,
    named_faults,
    shard_name,
)

# A shard is full at the first of these: some 20 MB of a game file, and offsets far below 2**31.
SHARD_GAMES = 1 << 16
SHARD_PLIES = 1 << 23
SHARD_TEXT_BYTES = 1 << 28  # names, events and the like, as they come: 4 KiB a game

# What a writer of rows hands over: SCHEMA with plain words instead of dictionaries. Columns of version 2 may
# follow it (row_schema).
ROW_SCHEMA = as_rows(SCHEMA)


def row_schema(names: Iterable[str]) -> pa.Schema:
    """ROW_SCHEMA and these columns of version 2, in their order."""
    return as_rows(schema_with(names))


def text_column(
    offset: npt.NDArray[np.int32], text: npt.NDArray[np.uint8], valid: npt.NDArray[Any]
) -> pa.Array[Any]:
    """G texts, null where `valid` [G] is 0; nothing but that is copied."""
    return pa.StringArray.from_buffers(
        len(valid), pa.py_buffer(offset.data), pa.py_buffer(text.data), _bits(valid), int((valid == 0).sum())
    )


def number_column(kind: pa.DataType, values: npt.NDArray[Any], valid: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    """G numbers, null where `valid` [G] is 0; nothing but that is copied."""
    return pa.Array.from_buffers(kind, len(values), [_bits(valid), pa.py_buffer(values.data)])


def list_column(
    kind: pa.DataType,
    offset: npt.NDArray[np.int32],
    entries: pa.Array[Any],
    valid: npt.NDArray[Any] | None = None,
) -> pa.Array[Any]:
    """G lists of `entries` from offset[g] to offset[g + 1], null where `valid` [G] is 0."""
    bits = None if valid is None else _bits(valid)
    return pa.Array.from_buffers(kind, len(offset) - 1, [bits, pa.py_buffer(offset.data)], children=[entries])


def _bits(valid: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little").data)


def rows_with(
    schema: pa.Schema, columns: Mapping[str, pa.Array[Any]], begin: int, num_rows: int
) -> pa.RecordBatch:
    """Rows begin ... of the columns, those as long as num_rows whole; what they lack of `schema` is null."""
    in_order: list[pa.Array[Any]] = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            column = pa.nulls(num_rows, field.type)
        in_order.append(column if len(column) == num_rows else column.slice(begin, num_rows))
    return pa.RecordBatch.from_arrays(in_order, schema=schema)


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file in full or not at all. Raises DataError."""
    with named_faults("write", path), replacing(path) as file:
        file.write(content)


class StoreWriter:
    """Builds a store in a working directory; `finish` gives it its name."""

    def __init__(
        self,
        directory: Path,
        game: str,
        *,
        shard_games: int = SHARD_GAMES,
        shard_plies: int = SHARD_PLIES,
        shard_text_bytes: int = SHARD_TEXT_BYTES,
    ) -> None:
        """Write into `directory`, which is there and empty but for a quarantine.jsonl."""
        self.directory = directory
        self.game = game
        self.shards: list[ShardEntry] = []
        self._limits = np.array([shard_games, shard_plies, shard_text_bytes])
        self._rows: list[pa.RecordBatch] = []
        self._open = np.zeros(3, np.int64)  # games, plies and bytes of text in the open rows

    def append(self, rows: pa.RecordBatch) -> None:
        """Add all rows (ROW_SCHEMA), closing shards as they fill. Raises DataError."""
        while rows.num_rows:
            lengths = pc.list_value_length(rows.column("moves")).to_numpy(zero_copy_only=False)
            sizes = np.stack([np.ones(rows.num_rows, np.int64), lengths, _text_bytes(rows)])
            sizes = self._open + np.cumsum(sizes, 1).T  # of the shard after each row
            is_full = np.flatnonzero(np.any(sizes >= self._limits, 1))
            taken = int(is_full[0]) + 1 if len(is_full) else rows.num_rows
            self._rows.append(rows.slice(0, taken))
            self._open = sizes[taken - 1]
            if len(is_full):
                self.close_shard()
            rows = rows.slice(taken)

    def close_shard(self) -> None:
        """Make the open rows a durable shard. Raises DataError."""
        if not self._rows:
            return
        content = encode_shard(self._rows)
        entry = ShardEntry(
            name=shard_name(len(self.shards)),
            games=int(self._open[0]),
            plies=int(self._open[1]),
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        write_whole(self.directory / entry.name, content)
        self.shards.append(entry)
        self._rows, self._open = [], np.zeros(3, np.int64)

    def finish(
        self,
        target: Path,
        sources: Sequence[SourceEntry],
        filters: Sequence[str] = (),
        rescored_by: str = "",
    ) -> Manifest:
        """Close the last shard, write the manifest, and rename the directory to `target`. filters: of games.

        The directory holds quarantine.jsonl already or gets an empty one; other files in it are the
        caller's to remove before. Raises DataError.
        """
        self.close_shard()
        manifest = manifest_of(self.directory, self.game, self.shards, sources, filters, rescored_by)
        write_whole(self.directory / MANIFEST_NAME, manifest.to_json().encode())
        try:
            self.directory.rename(target)
            fsync_directory(target.parent)
        except OSError as error:
            raise DataError(f"{target}: cannot rename {self.directory} to it: {error.strerror}") from error
        return manifest


def manifest_of(
    directory: Path,
    game: str,
    shards: Sequence[ShardEntry],
    sources: Sequence[SourceEntry] = (),
    filters: Sequence[str] = (),
    rescored_by: str = "",
) -> Manifest:
    """The manifest of what a directory holds, which gets an empty quarantine.jsonl if it has none."""
    quarantine = directory / QUARANTINE_NAME
    if not quarantine.exists():
        write_whole(quarantine, b"")
    num_quarantined = sum(source.num_quarantined for source in sources)
    with named_faults("read", quarantine):
        entry = QuarantineEntry(num_quarantined, quarantine.stat().st_size, sha256_of(quarantine))
    return Manifest(
        game=game,
        shards=tuple(shards),
        sources=tuple(sources),
        quarantine=entry,
        version=_version_of_shards(directory, shards),
        filters=tuple(filters),
        rescored_by=rescored_by,
    )


def _text_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """i64 [rows]: bytes of all words of each row."""
    total = np.zeros(rows.num_rows, np.int64)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_string(field.type):
            words: Any = column  # the stubs know no type test
            total += pc.fill_null(pc.binary_length(words), 0).to_numpy(zero_copy_only=False)
    return total


def _version_of_shards(directory: Path, shards: Sequence[ShardEntry]) -> int:
    """The version of a store of these shards, by the columns that they have. Raises DataError."""
    version = OLDEST_VERSION
    for entry in shards:
        path = directory / entry.name
        try:
            with path.open("rb") as file:
                version = max(version, version_of(pa.ipc.open_file(file).schema))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: no readable shard: {reason(error)}") from error
    return version


def encode_shard(rows: Sequence[pa.RecordBatch]) -> memoryview:
    """The bytes of one shard: equal rows give equal bytes, however they are cut into batches.

    It has the columns of version 2 that hold anything; without any it is a shard of version 1.
    """
    used = {
        name
        for batch in rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.null_count < batch.num_rows
    }
    schema = schema_with(used)
    wanted = as_rows(schema)
    table = pa.Table.from_batches(
        [
            rows_with(wanted, dict(zip(batch.schema.names, batch.columns, strict=True)), 0, batch.num_rows)
            for batch in rows
        ]
    )
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        whole = pa.concat_arrays(column.chunks)
        columns.append(whole.dictionary_encode() if pa.types.is_dictionary(field.type) else whole)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())
