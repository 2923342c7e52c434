"""Import of lc0's training data into a game store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from alphazero.data.importing.importer import ALL_GAMES, Format, ImportReport, import_sources, to_stderr
from alphazero.data.lc0.rows import GAME, rows_of
from alphazero.data.lc0.source import find_sources, sha256_of_source
from alphazero.data.lc0.stream import CHUNK_BYTES, parse_sources
from alphazero.data.store.writer import SHARD_GAMES, SHARD_PLIES
from alphazero.filter_settings import GameFilters


def import_lc0(
    sources: Sequence[Path],
    store: Path,
    *,
    workers: int,
    progress: bool,
    filters: GameFilters = ALL_GAMES,
    wait: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    shard_limits: tuple[int, int] = (SHARD_GAMES, SHARD_PLIES),
    say: Callable[[str], None] = to_stderr,
) -> ImportReport:
    """Read V6 and V7 files, archives and directories of them (find_sources) into the game store `store`.

    As import_sources does; no game is quarantined: the first that cannot be rebuilt ends the import with a
    DataError that names file and record. chunk_bytes: of packed games that a thread rebuilds at once.
    """
    lc0 = Format(
        game=GAME,
        parse=partial(parse_sources, chunk_bytes=chunk_bytes),
        rows=rows_of,
        name_of_fault=str,
        sha256=sha256_of_source,
    )
    return import_sources(
        lc0,
        find_sources(sources, say),
        store,
        workers=workers,
        progress=progress,
        filters=filters,
        wait=wait,
        shard_limits=shard_limits,
    )
