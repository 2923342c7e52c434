"""Data as a user names it: game stores as they are, raw files imported once into a cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from alphazero.data.importing.files import Source
from alphazero.data.importing.journal import VERSION as IMPORT_VERSION
from alphazero.data.pgn.importer import import_pgn
from alphazero.data.pgn.source import find_sources
from alphazero.data.store.schema import OLDEST_VERSION as STORE_VERSION
from alphazero.data.store.store import MANIFEST_NAME, GameStore
from alphazero.errors import DataError
from alphazero.host.machine import count_processors


def open_or_import(
    paths: Sequence[Path], cache_dir: Path, *, workers: int = 0, progress: bool = False
) -> list[GameStore]:
    """The stores behind paths: directories with a manifest, and one store for all the raw files and
    directories among them, which stands where the first of those was named.

    The raw files' store is found again by their paths, sizes and modification times. Processes that ask
    for the same one at the same time wait for the first. workers: 0 takes all cores. Raises DataError.
    """
    is_store = [(path / MANIFEST_NAME).exists() for path in paths]
    raw = [path for path, complete in zip(paths, is_store, strict=True) if not complete]
    stores: list[GameStore] = []
    raw_done = False
    for path, complete in zip(paths, is_store, strict=True):
        if complete:
            stores.append(GameStore.open(path))
        elif not raw_done:
            stores.append(_open_cached(raw, cache_dir, workers or count_processors(), progress))
            raw_done = True
    games = {store.manifest.game for store in stores}
    if len(games) > 1:
        raise DataError(f"{', '.join(map(str, paths))}: different games: {', '.join(sorted(games))}")
    return stores


def _open_cached(raw: Sequence[Path], cache_dir: Path, workers: int, progress: bool) -> GameStore:
    store = cache_dir / f"pgn-{cache_key(find_sources(raw))}"
    if not (store / MANIFEST_NAME).exists():
        import_pgn(raw, store, workers=workers, progress=progress, wait=True)
    return GameStore.open(store)


def cache_key(sources: Sequence[Source]) -> str:
    """Equal for the same files, unchanged, under the same versions of importer and store."""
    identity = [
        [source.name, str(source.path.resolve()), source.size_bytes, source.mtime_ns] for source in sources
    ]
    text = json.dumps([STORE_VERSION, IMPORT_VERSION, identity])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
