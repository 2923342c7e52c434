"""Import of files into a game store: on all cores, with the same bytes for any number of them.

While it runs, <store>.importing/ (working_directory.py) holds the unfinished store; the last step renames it
to <store>. An import that is interrupted leaves nothing of the store; the same command starts it again.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.files import resolved
from alphazero.base.log import Work
from alphazero.base.text import counted, escaped, quoted, shortened
from alphazero.data.formats.files import Source, names_below, sha256_of_source
from alphazero.data.formats.lc0 import LC0, Lc0Chunk
from alphazero.data.formats.lc0_files import lc0_in
from alphazero.data.formats.parallel import Format, SourceEnd, parse_in_order
from alphazero.data.formats.pgn import PGN
from alphazero.data.formats.quarantine import MOST_LINES, UNREADABLE, Quarantine
from alphazero.data.formats.working_directory import WorkingDirectory
from alphazero.data.store.game_filters import filter_texts, removed_by
from alphazero.data.store.rescoring import Rescoring
from alphazero.data.store.store import MANIFEST_NAME, QUARANTINE_NAME, Manifest, SourceEntry
from alphazero.data.store.writer import SHARD_GAMES, SHARD_PLIES, StoreWriter
from alphazero.settings.data import GameFilters

C = TypeVar("C")
G = TypeVar("G", bound=_core.PgnGames | Lc0Chunk)

ALL_GAMES = GameFilters()
# Of what the parsers make of files: with another number, as with other columns, cached stores are made again.
VERSION = 4

MEGABYTE = 1_000_000
_ROWS_AT_ONCE = 1 << 16  # their columns of repeated words are whole in memory


@dataclass(frozen=True)
class ImportReport:
    """What an import did. was_there: the store held these sources already and nothing was done."""

    store: Path
    manifest: Manifest
    was_there: bool
    seconds: float

    @property
    def games_read(self) -> int:
        """Games found in the sources: imported, quarantined and left out by filters."""
        return sum(source.games for source in self.manifest.sources)


def to_stderr(line: str) -> None:
    """For what is passed over."""
    print(escaped(line), file=sys.stderr)


def silent() -> None:
    """For a reader that nothing watches."""


def format_of(paths: Sequence[Path]) -> Format[Any, Any]:
    """LC0 or PGN, by what the files are. Raises DataError for both."""
    lc0, others = [], []
    for path in paths:
        below = names_below(path) if path.is_dir() else []
        pgn = next((file for file in below if PGN.kind.is_meant(file.name.lower())), None)
        found = lc0_in(path)
        lc0 += [found] if found else []
        others += [pgn or path] if pgn or not found else []
    if lc0 and others:
        raise DataError(
            f"{lc0[0]} holds lc0 training data and {others[0]} PGN; expected one of them for a store"
        )
    return LC0 if lc0 else PGN


def import_games(
    paths: Sequence[Path],
    store: Path,
    *,
    workers: int,
    progress: Work | None = None,
    kind: Format[Any, Any] | None = None,
    filters: GameFilters = ALL_GAMES,
    rescoring: Rescoring | None = None,
    wait: bool = False,
    chunk_bytes: int = 0,
    shard_limits: tuple[int, int] = (SHARD_GAMES, SHARD_PLIES),
    most_quarantine_lines: int = MOST_LINES,
    say: Callable[[str], None] = to_stderr,
    beat: Callable[[], None] = silent,
) -> ImportReport:
    """Read files and directories into the game store `store`.

    workers: threads that parse, and as many that read. progress: shows the file being read, the megabytes
    of all files, and the games. kind: PGN or LC0; None looks at the files. filters: games that do not pass
    are counted and not stored. rescoring: corrects the results of those that pass. wait: for another import
    of the same store, instead of refusing. chunk_bytes: of a file that a thread parses at once; 0 takes the
    format's own. shard_limits: games, plies of a full shard. most_quarantine_lines: of the store; further
    faulty games are only counted. say: receives a line for each thing passed over. beat: called again and
    again while games are read. Raises DataError, and then leaves nothing behind.
    """
    began = time.monotonic()
    kind = kind or format_of(paths)
    sources = kind.find(paths, say)
    made = tuple(filter_texts(filters)), rescoring.text if rescoring else ""
    store = resolved(store)
    work = WorkingDirectory(store)
    while True:
        if (manifest := _present_manifest(sources, store, *made)) is not None:
            work.remove()  # of an import killed in its last step
            return ImportReport(store, manifest, True, time.monotonic() - began)
        with work.locked(wait=wait):
            # Another import may have finished while this one waited.
            if (store / MANIFEST_NAME).exists():
                continue
            if work.begin_store():
                say(f"{work.path}: removed what an interrupted import left; reading all files again")
            run = _Import(
                kind, sources, work.store, filters, rescoring, shard_limits, most_quarantine_lines, say
            )
            manifest = run.run(store, workers, chunk_bytes, progress or Work("import"), beat)
        return ImportReport(store, manifest, False, time.monotonic() - began)


def _present_manifest(
    sources: Sequence[Source], store: Path, filters: tuple[str, ...], rescored_by: str
) -> Manifest | None:
    """The manifest of a complete store of these sources, None if nothing is there; else DataError."""
    if not os.path.lexists(store) or (store.is_dir() and not any(store.iterdir())):
        return None
    if not (store / MANIFEST_NAME).exists():
        raise DataError(f"{store}: not a game store; name another or remove it")
    manifest = Manifest.from_json(store / MANIFEST_NAME)
    advice = "name another store or remove it"
    check_sources(store, manifest, sources, sha256_of_source, advice)
    present, wanted = (*manifest.filters, manifest.rescored_by), (*filters, rescored_by)
    if present != wanted:
        texts = [", ".join(filter(None, made)) or "no filters" for made in (present, wanted)]
        raise DataError(f"{store}: holds these sources with {texts[0]}; expected {texts[1]}: {advice}")
    return manifest


def check_sources(
    store: Path,
    manifest: Manifest,
    sources: Sequence[Source],
    sha256_of: Callable[[Source], str] | None,
    advice: str,
) -> None:
    """Raise DataError unless the manifest names these sources; with sha256_of, by content as well."""
    if [(entry.name, entry.size_bytes) for entry in manifest.sources] != [
        (source.name, source.size_bytes) for source in sources
    ]:
        raise DataError(f"{store}: holds the games of other sources than {sources[0].path}: {advice}")
    if sha256_of is None:
        return
    for source, entry in zip(sources, manifest.sources, strict=True):
        if (digest := sha256_of(source)) != entry.sha256:
            raise DataError(
                f"{store}: holds the games of other sources: {source.path} has sha256 {digest[:12]}..., "
                f"the manifest {quoted(entry.sha256[:12])}: {advice}"
            )


@dataclass
class _Counts:
    """Counts over the games of one source that were read so far."""

    games: int = 0
    lines: int = 0
    imported: int = 0
    plies: int = 0
    contradictions: int = 0
    skipped: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)
    filtered: Counter[str] = field(default_factory=Counter)  # by filter
    rescored: Counter[str] = field(default_factory=Counter)  # by results before and after


class _Import(Generic[C, G]):
    """One import: reads all sources, adds their rows to the store, counts."""

    def __init__(
        self,
        kind: Format[C, G],
        sources: Sequence[Source],
        directory: Path,
        filters: GameFilters,
        rescoring: Rescoring | None,
        shard_limits: tuple[int, int],
        most_lines: int,
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._kind = kind
        self._sources = sources
        self._filters = filters
        self._filter_texts = filter_texts(filters)
        self._rescoring = rescoring
        self._finished: list[SourceEntry] = []
        self._games_finished = 0
        self._counts = _Counts()  # of the source that is read
        self._quarantine = Quarantine(most_lines)
        self._writer = StoreWriter(
            directory, kind.game, shard_games=shard_limits[0], shard_plies=shard_limits[1]
        )

    def run(
        self, target: Path, workers: int, chunk_bytes: int, work: Work, beat: Callable[[], None]
    ) -> Manifest:
        """Read all sources and give the store its name."""
        before = work.what, work.unit, work.total, work.done, work.note
        self._read(workers, chunk_bytes, work, beat)
        work.what, work.unit, work.total, work.done, work.note = before
        if not any(entry.imported for entry in self._finished):
            raise self._nothing_imported()
        num_quarantined = sum(entry.num_quarantined for entry in self._finished)
        self._quarantine.write(self._writer.directory / QUARANTINE_NAME, num_quarantined)
        rescored_by = self._rescoring.text if self._rescoring else ""
        return self._writer.finish(target, self._finished, self._filter_texts, rescored_by)

    def _nothing_imported(self) -> DataError:
        """What was wrong with the first game, and what each filter removed."""
        reason = self._quarantine.first_reason
        first = f"; the first: {reason}" if reason else ""
        removed = "".join(
            f"; {text}: removed {sum(entry.filtered.get(text, 0) for entry in self._finished)}"
            for text in self._filter_texts
        )
        return DataError(
            f"{self._sources[0].path}: no game could be imported from {counted(len(self._sources), 'file')}"
            f" ({counted(self._games_finished, 'game')} found{removed}{first})"
        )

    def _read(self, workers: int, chunk_bytes: int, work: Work, beat: Callable[[], None]) -> None:
        bytes_read: deque[int] = deque()  # by threads that read; not yet shown
        size_bytes = 0
        work.what, work.unit = self._reading(), "MB"
        work.total = max(1, sum(source.size_bytes for source in self._sources) // MEGABYTE)
        items = parse_in_order(self._kind, self._sources, workers, bytes_read.append, chunk_bytes)
        began = time.monotonic()
        with closing(items):
            while (item := self._next(items)) is not None:
                if isinstance(item, SourceEnd):
                    self._end_source(item)
                else:
                    self._take(item)
                games = self._games_finished + self._counts.games
                per_second = games / (time.monotonic() - began)
                size_bytes += sum(bytes_read.popleft() for _ in range(len(bytes_read)))
                work.what = self._reading()
                work.advance(size_bytes // MEGABYTE, f"{counted(games, 'game')}, {per_second:,.0f} games/s")
                beat()

    def _reading(self) -> str:
        """The file whose games are read."""
        return f"import {shortened(self._sources[min(len(self._finished), len(self._sources) - 1)].name)}"

    def _next(self, items: Iterator[G | SourceEnd]) -> G | SourceEnd | None:
        try:
            return next(items, None)
        except DataError as error:
            if not self._counts.games:
                raise
            raise DataError(f"{error} ({self._counts.games} games of it read before)") from error

    def _take(self, games: G) -> None:
        """Rows to the writer, faults to the quarantine, all of them counted."""
        counts, name = self._counts, self._sources[len(self._finished)].name
        num_games = len(games.moves_offset) - 1
        counts.filtered.update(dict.fromkeys(self._filter_texts, 0))
        for begin in range(0, num_games, _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, num_games)
            rows = self._kind.rows(games, name, begin, end)
            first = removed_by(rows, rows.num_rows, self._filters)
            passes = first == 0
            rows = rows if passes.all() else rows.filter(pa.array(passes))
            if self._rescoring is not None:
                rows, rescored = self._rescoring.rows(rows)
                counts.rescored.update(rescored)
            self._writer.append(rows)
            counts.imported += rows.num_rows
            counts.plies += pc.sum(pc.list_value_length(rows.column("moves"))).as_py() or 0
            counts.contradictions += int(np.count_nonzero(games.contradiction[begin:end][passes]))
            removed = np.bincount(first, minlength=len(self._filter_texts) + 1)[1:].tolist()
            counts.filtered.update(dict(zip(self._filter_texts, removed, strict=True)))
        self._quarantine.add(games, name, counts.games, counts.lines)
        kinds, numbers = np.unique(games.fault, return_counts=True)
        for fault, number in zip(kinds.tolist(), numbers.tolist(), strict=True):
            counts.quarantined[_core.PgnFault(fault).name.lower()] += number
        counts.games += games.games_read
        counts.lines += games.lines
        counts.skipped += games.skipped

    def _end_source(self, end: SourceEnd) -> None:
        source, counts = self._sources[len(self._finished)], self._counts
        if end.fault:
            self._say(f"{source.path}: {end.fault} ({counted(counts.games, 'game')} of it read before)")
            self._quarantine.add_one(source.name, counts.games, counts.lines, UNREADABLE, end.fault)
            counts.quarantined[UNREADABLE] += 1
            counts.games += 1
        numbers = ("games", "imported", "plies", "contradictions", "skipped")
        entry = SourceEntry(
            name=source.name,
            size_bytes=source.size_bytes,
            sha256=end.sha256,
            quarantined=dict(sorted(counts.quarantined.items())),
            filtered=dict(counts.filtered),
            rescored=dict(sorted(counts.rescored.items())),
            **{name: getattr(counts, name) for name in numbers},
        )
        self._finished.append(entry)
        self._games_finished += entry.games
        self._counts = _Counts()
