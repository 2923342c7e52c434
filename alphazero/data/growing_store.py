"""A game store that grows: shards are added one at a time, and the manifest is replaced after each.

Readers open it as any other store (store.py). A crash at any moment leaves the store before or after an
append; a shard file that the manifest does not name is left over from one and replaced by the next.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from alphazero.data.store import (
    MANIFEST_NAME,
    QUARANTINE_NAME,
    GameStore,
    Manifest,
    ShardEntry,
    shard_name,
)
from alphazero.data.store_writer import encode_shard, write_whole
from alphazero.errors import DataError
from alphazero.files import fsync_directory, remove_unfinished

SET_ASIDE = "set-aside"


class GrowingStore:
    """The one writer of a growing store. `manifest` is what it holds, None while it is empty."""

    def __init__(self, path: Path, game: str) -> None:
        """Open the store at `path` to add games of `game`; it is made by the first append.

        Raises DataError where something else is there, or games of another game.
        """
        self.path = path
        self.game = game
        self.manifest: Manifest | None = None
        if (path / MANIFEST_NAME).exists():
            self.manifest = GameStore.open(path).manifest
            if self.manifest.game != game:
                raise DataError(f"{path}: holds games of {self.manifest.game}; wanted {game}")
        elif path.exists() and not (path.is_dir() and _is_unfinished(path)):
            raise DataError(f"{path}: is there and no game store; wanted a new or an existing store")
        if path.is_dir():
            remove_unfinished(path)

    @property
    def shards(self) -> tuple[ShardEntry, ...]:
        """Those of the manifest."""
        return self.manifest.shards if self.manifest else ()

    def append(self, rows: pa.RecordBatch) -> ShardEntry:
        """Add a shard of these rows (ROW_SCHEMA). Raises DataError where it cannot be written."""
        return self.append_shard(bytes(encode_shard([rows])))

    def append_shard(self, content: bytes) -> ShardEntry:
        """Add a shard by its bytes, as another store has them. Raises DataError."""
        try:
            batch = pa.ipc.open_file(pa.py_buffer(content)).get_batch(0)
        except pa.ArrowException as error:
            raise DataError(f"{self.path}: no shard to add: {' '.join(str(error).split())}") from error
        entry = ShardEntry(
            name=shard_name(len(self.shards)),
            games=batch.num_rows,
            plies=_num_values(batch.column("moves")),
            size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be made: {error.strerror}") from error
        write_whole(self.path / entry.name, content)
        self._write_manifest((*self.shards, entry))
        return entry

    def truncate_to(self, num_shards: int) -> None:
        """Hold the first `num_shards` shards alone; the files of the others go to the folder `set-aside`.

        Raises DataError where there are not as many.
        """
        dropped = self.shards[num_shards:]
        if len(self.shards) < num_shards:
            raise DataError(f"{self.path}: {len(self.shards)} shards; wanted at least {num_shards}")
        if not dropped:
            return
        self._write_manifest(self.shards[:num_shards])
        aside = self.path / SET_ASIDE
        try:
            aside.mkdir(exist_ok=True)
            for entry in dropped:
                (self.path / entry.name).replace(aside / f"{entry.sha256[:12]}-{entry.name}")
            fsync_directory(aside)
        except OSError as error:
            raise DataError(f"{aside}: cannot be written: {error.strerror}") from error

    def _write_manifest(self, shards: tuple[ShardEntry, ...]) -> None:
        quarantine = self.path / QUARANTINE_NAME
        if not quarantine.exists():
            write_whole(quarantine, b"")
        manifest = Manifest(
            game=self.game,
            shards=shards,
            sources=(),
            quarantine_games=0,
            quarantine_size_bytes=0,
            quarantine_sha256=hashlib.sha256(b"").hexdigest(),
        )
        write_whole(self.path / MANIFEST_NAME, manifest.to_json().encode())
        self.manifest = manifest


def _num_values(lists: Any) -> int:  # noqa: ANN401 - a list column, which pyarrow's stubs do not tell
    return len(lists.flatten())


def _is_unfinished(path: Path) -> bool:
    """True for what a crash leaves of a store that had no manifest yet."""
    return all(
        entry.name.startswith(("shard-", ".")) or entry.name in (QUARANTINE_NAME, SET_ASIDE)
        for entry in path.iterdir()
    )
