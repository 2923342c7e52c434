"""A game store that grows: shards are added one at a time, and the manifest is replaced after each.

Readers open it as any other store (store.py). A crash at any moment leaves the store as it was before or
after what was done. Shards that the manifest does not know, left by a crash or dropped by `truncate_to`,
lie in the folder `set-aside`; one that is added again leaves it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa

from alphazero.base.errors import DataError
from alphazero.base.files import fsync_directory, remove_unfinished, sha256_of
from alphazero.data.store.store import (
    MANIFEST_NAME,
    QUARANTINE_NAME,
    GameStore,
    Manifest,
    ShardEntry,
    named_faults,
    shard_batch,
    shard_name,
    view_of,
)
from alphazero.data.store.writer import encode_shard, manifest_of, write_whole

SET_ASIDE = "set-aside"
REFUSED = "refused"  # the folder of shards that a place brought and that did not enter (docs/actors.md)
_SHARDS = "shard-*.arrow"


class GrowingStore:
    """The one writer of a growing store. `manifest` is what it holds, None before the first shard.

    Where another process wrote to the store in the meantime, the next write raises DataError and changes
    nothing.
    """

    def __init__(self, path: Path, game: str) -> None:
        """Open the store at `path` to add games of `game`; it is made by the first append.

        What a killed writer left is cleared away. Raises DataError where something else exists, a damaged
        store, or games of another game.
        """
        self.path = path
        self.game = game
        self.manifest: Manifest | None = None
        if (path / MANIFEST_NAME).exists():
            self.manifest = GameStore.open(path).manifest
            if self.manifest.game_now != game:
                raise DataError(f"{path}: holds games of {self.manifest.game}; expected {game}")
            if self.manifest.sources or self.manifest.quarantine.size_bytes:
                raise DataError(f"{path}: holds games read from files; expected a store that grows")
        elif path.exists() and not (path.is_dir() and _is_unfinished(path)):
            raise DataError(f"{path}: not a game store; expected a new or an existing one")
        self._attempted = self.manifest  # may be on disk although writing it failed
        if path.is_dir():
            self._settle()

    @property
    def shards(self) -> tuple[ShardEntry, ...]:
        """Those of the manifest."""
        return self.manifest.shards if self.manifest else ()

    def append(self, rows: pa.RecordBatch) -> ShardEntry:
        """Add a shard of these rows (ROW_SCHEMA or row_schema), as `append_shard` does. Raises DataError."""
        return self.append_shard(bytes(encode_shard([rows])))

    def append_shard(self, content: bytes) -> ShardEntry:
        """Add a shard by its bytes, as another store has them; one that the store holds changes nothing.

        Raises DataError for bytes that are no shard of this game, and where they cannot be written: then the
        store is as it was, or has the shard already, and the same call may be made again.
        """
        self._check_is_current()
        digest = hashlib.sha256(content).hexdigest()
        for known in self.shards:
            if known.sha256 == digest:
                return known
        name = shard_name(len(self.shards))
        batch = shard_batch(pa.py_buffer(content), self.path / name)
        view = view_of(batch, self.path / name)
        others = sorted({str(game) for game in batch.column("game").unique().to_pylist()} - {self.game})
        if others:
            raise DataError(f"{self.path}: games of {', '.join(others)} to add; expected {self.game}")
        entry = ShardEntry(name, view.num_games, view.num_plies, len(content), digest)
        with named_faults("write", self.path, within=True):
            _make_directory(self.path)
        write_whole(self.path / name, content)
        self._write_manifest((*self.shards, entry))
        with named_faults("write", self.path, within=True):
            (self.path / SET_ASIDE / _aside_name(digest, name)).unlink(missing_ok=True)
        return entry

    def truncate_to(self, num_shards: int) -> None:
        """Hold the first `num_shards` shards alone; the files of the others go to the folder `set-aside`.

        Raises DataError where there are not as many, or files cannot be moved: the store is one of the two.
        """
        if not 0 <= num_shards <= len(self.shards):
            raise DataError(f"{self.path}: {len(self.shards)} shards; expected at least {num_shards}")
        if num_shards == len(self.shards):
            return
        self._check_is_current()
        self._write_manifest(self.shards[:num_shards])
        self._settle()

    def _write_manifest(self, shards: tuple[ShardEntry, ...]) -> None:
        manifest = manifest_of(self.path, self.game, shards)
        self._attempted = manifest
        write_whole(self.path / MANIFEST_NAME, manifest.to_json().encode())
        self.manifest = manifest

    def _check_is_current(self) -> None:
        path = self.path / MANIFEST_NAME
        manifest = Manifest.from_json(path) if path.exists() else None
        if manifest not in (self.manifest, self._attempted):
            raise DataError(f"{self.path}: another process has written to it; expected one writer a store")

    def _settle(self) -> None:
        """Remove files that were never finished, and set aside the shards that the manifest does not know."""
        known = {entry.name for entry in self.shards}
        with named_faults("write", self.path, within=True):
            remove_unfinished(self.path)
            strays = sorted(path for path in self.path.glob(_SHARDS) if path.name not in known)
            if not strays:
                return
            aside = self.path / SET_ASIDE
            _make_directory(aside)
            for stray in strays:
                stray.replace(aside / _aside_name(sha256_of(stray), stray.name))
            fsync_directory(aside)
            fsync_directory(self.path)


def _aside_name(digest: str, name: str) -> str:
    return f"{digest[:16]}-{name}"


def _make_directory(path: Path) -> None:
    """Make it and its parents, so that they survive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        fsync_directory(folder.parent)


def _is_unfinished(path: Path) -> bool:
    """True for what a crash leaves of a store that had no manifest yet, and for shards that were refused."""
    return all(
        entry.name.startswith((".", "shard-")) or entry.name in (QUARANTINE_NAME, SET_ASIDE, REFUSED)
        for entry in path.iterdir()
    )
