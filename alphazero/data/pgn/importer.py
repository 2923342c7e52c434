"""Import of PGN into a game store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from alphazero._core import PgnFault
from alphazero.data.importing.importer import ALL_GAMES, Format, ImportReport, import_sources, to_stderr
from alphazero.data.importing.quarantine import MOST_LINES
from alphazero.data.pgn.rows import GAME, rows_of
from alphazero.data.pgn.source import find_sources
from alphazero.data.pgn.stream import CHUNK_BYTES, parse_sources
from alphazero.data.store.writer import SHARD_GAMES, SHARD_PLIES
from alphazero.files import sha256_of
from alphazero.filter_settings import GameFilters


def import_pgn(
    sources: Sequence[Path],
    store: Path,
    *,
    workers: int,
    progress: bool,
    filters: GameFilters = ALL_GAMES,
    wait: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    shard_limits: tuple[int, int] = (SHARD_GAMES, SHARD_PLIES),
    most_quarantine_lines: int = MOST_LINES,
    say: Callable[[str], None] = to_stderr,
) -> ImportReport:
    """Read PGN files and directories (find_sources) into the game store `store`, as import_sources does.

    chunk_bytes: of text that a thread parses at once. say: told of what is passed over. Raises DataError.
    """
    pgn = Format(
        game=GAME,
        parse=partial(parse_sources, chunk_bytes=chunk_bytes),
        rows=rows_of,
        name_of_fault=lambda fault: PgnFault(fault).name.lower(),
        sha256=lambda source: sha256_of(source.path),
    )
    return import_sources(
        pgn,
        find_sources(sources, say),
        store,
        workers=workers,
        progress=progress,
        filters=filters,
        wait=wait,
        shard_limits=shard_limits,
        most_quarantine_lines=most_quarantine_lines,
    )
