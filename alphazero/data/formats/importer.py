"""Import of files into a game store: all cores, broken off and continued, the same bytes in any case.

While it runs, <store>.importing/ (working_directory.py) holds `lock`, `journal.json` and the unfinished store
in `store/`; the last step renames that to <store>.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tqdm import tqdm

from alphazero.base.errors import DataError
from alphazero.base.text import printable
from alphazero.data.formats.files import Source
from alphazero.data.formats.journal import Journal, Place, Tally
from alphazero.data.formats.parallel import ParsedChunk, ParsedGames, SourceEnd
from alphazero.data.formats.quarantine import MOST_LINES, Quarantine
from alphazero.data.formats.working_directory import MARKER, WorkingDirectory
from alphazero.data.store.game_filters import filter_texts, first_to_remove, judged
from alphazero.data.store.store import MANIFEST_NAME, QUARANTINE_NAME, Manifest, SourceEntry
from alphazero.data.store.writer import SHARD_GAMES, SHARD_PLIES, StoreWriter
from alphazero.machine.lock import ImportLock
from alphazero.settings.sections import GameFilters

P = TypeVar("P", bound=ParsedGames)

ALL_GAMES = GameFilters()

_ROWS_AT_ONCE = 1 << 16  # their columns of repeated words are whole in memory


class Parse(Protocol[P]):
    """The games of sources[first_source:], in order, each source's chunks and then its end.

    The first `skip_bytes` of the first source are passed over. With several workers `count_bytes`, told what
    of the files was read, is called from many threads. Raises DataError where the fault stands.
    """

    def __call__(
        self,
        sources: Sequence[Source],
        *,
        workers: int,
        count_bytes: Callable[[int], None],
        first_source: int,
        skip_bytes: int,
    ) -> Generator[ParsedChunk[P] | SourceEnd, None, None]: ...


@dataclass(frozen=True)
class Format(Generic[P]):
    """How files of one kind become rows of a store.

    rows: games begin ... end - 1 of a chunk, for a source of this name. name_of_fault: by its number in the
    chunk's `fault`. sha256: of a source's files.
    """

    game: str
    parse: Parse[P]
    rows: Callable[[P, str, int, int], pa.RecordBatch]
    name_of_fault: Callable[[int], str]
    sha256: Callable[[Source], str]


@dataclass(frozen=True)
class ImportReport:
    """What an import did. was_there: the store held these sources already and nothing was done."""

    store: Path
    manifest: Manifest
    was_there: bool
    continued: bool
    seconds: float

    @property
    def games_read(self) -> int:
        """Games found in the sources: imported, quarantined and left out by filters."""
        return sum(source.games for source in self.manifest.sources)


def working_directory(store: Path) -> Path:
    """Where the import of `store` is at work."""
    return WorkingDirectory(store).path


def to_stderr(line: str) -> None:
    """For what is passed over."""
    print(line, file=sys.stderr)


def import_sources(
    kind: Format[P],
    found: Sequence[Source],
    store: Path,
    *,
    workers: int,
    progress: bool,
    filters: GameFilters = ALL_GAMES,
    wait: bool = False,
    shard_limits: tuple[int, int] = (SHARD_GAMES, SHARD_PLIES),
    most_quarantine_lines: int = MOST_LINES,
) -> ImportReport:
    """Read files into the game store `store`.

    workers: threads that parse, and as many that read. progress: a bar on stderr. filters: games that do not
    pass are counted and not stored.
    wait: for another import of the same store, instead of refusing. shard_limits: games, plies of a
    full shard. most_quarantine_lines: of the store; more faulty games are only counted. Raises DataError; the
    shards that were finished by then are kept for the next call, where there are none nothing is.
    """
    begin = time.monotonic()
    texts = filter_texts(filters)
    store = store.resolve()
    work = WorkingDirectory(store)
    while True:
        if (manifest := _present_manifest(kind, found, store, texts)) is not None:
            work.remove()  # of a run killed in its last step
            return ImportReport(store, manifest, True, False, time.monotonic() - begin)
        work.make()
        with ImportLock(work.lock, wait=wait, marker=MARKER) as lock:
            # Another import may have finished while this one waited.
            if not lock.is_current() or (store / MANIFEST_NAME).exists():
                continue
            run = _ImportRun(kind, found, store, filters, shard_limits, most_quarantine_lines)
            with tqdm(
                total=sum(source.size_bytes for source in found),
                unit="B",
                unit_scale=True,
                desc=f"import {printable(store.name)}",
                disable=not progress,
            ) as bar:
                try:
                    manifest = run.run(workers, bar)
                except DataError:
                    if not work.journal.exists():
                        work.remove()
                    raise
            work.remove()
        return ImportReport(store, manifest, False, run.continued, time.monotonic() - begin)


def _present_manifest(
    kind: Format[P], found: Sequence[Source], store: Path, filters: Sequence[str]
) -> Manifest | None:
    """The manifest of a complete store of these sources, None if nothing is there; else DataError."""
    if not store.exists():
        return None
    if not (store / MANIFEST_NAME).exists():
        if store.is_dir() and not any(store.iterdir()):
            return None
        raise DataError(f"{store}: is there and is no game store; name another or remove it")
    manifest = Manifest.from_json(store / MANIFEST_NAME)
    here = [(source.name, source.size_bytes) for source in found]
    there = [(entry.name, entry.size_bytes) for entry in manifest.sources]
    same = here == there and all(
        kind.sha256(source) == entry.sha256 for source, entry in zip(found, manifest.sources, strict=True)
    )
    if not same:
        raise DataError(f"{store}: holds the games of other sources; name another store or remove it")
    if manifest.filters != tuple(filters):
        raise DataError(
            f"{store}: holds these sources with {_told(manifest.filters)}, asked for are {_told(filters)};"
            " name another store or remove it"
        )
    return manifest


def _told(filters: Sequence[str]) -> str:
    return f"the filters {', '.join(filters)}" if filters else "no filters"


class _ImportRun(Generic[P]):
    """One run of an import: reads from the journal's place on, adds rows, keeps the journal."""

    def __init__(
        self,
        kind: Format[P],
        sources: Sequence[Source],
        store: Path,
        filters: GameFilters,
        shard_limits: tuple[int, int],
        most_lines: int,
    ) -> None:
        self.kind = kind
        self.filters = filters
        self.filter_texts = filter_texts(filters)
        self.sources = sources
        self.store = store
        self.work = WorkingDirectory(store)
        self.work.check()
        fresh = Journal.begin(sources, shard_limits, self.filter_texts)
        journal = Journal.load(self.work.journal)
        self.continued = journal is not None
        self.journal = journal or fresh
        if (self.journal.sources, self.journal.shard_limits) != (fresh.sources, fresh.shard_limits):
            raise DataError(
                f"{self.work.path}: holds an unfinished import of other sources, or of these before"
                " they changed; remove it to start anew"
            )
        if self.journal.filters != fresh.filters:
            raise DataError(
                f"{self.work.path}: holds an unfinished import with {_told(self.journal.filters)}, asked for"
                f" are {_told(fresh.filters)}; remove it to start anew"
            )
        self.finished = list(self.journal.finished)
        self.games_finished = sum(entry.games for entry in self.finished)
        self.place = self.journal.place
        known = {shard.name: shard.size_bytes for shard in self.journal.shards}
        self.work.clean_store({**known, QUARANTINE_NAME: self.journal.quarantine_size_bytes})
        self.quarantine = Quarantine(self.work.store / QUARANTINE_NAME, most_lines)
        self.writer = StoreWriter(
            self.work.store,
            kind.game,
            shards=self.journal.shards,
            shard_games=shard_limits[0],
            shard_plies=shard_limits[1],
        )

    def run(self, workers: int, bar: tqdm[Any]) -> Manifest:
        """Read all sources and finish the store."""
        with closing(self.quarantine):
            self._read(workers, bar)
            self.quarantine.finish(sum(entry.num_quarantined for entry in self.finished))
        if not any(entry.imported for entry in self.finished):
            raise self._nothing_imported()
        return self.writer.finish(self.store, self.finished, self.filter_texts)

    def _nothing_imported(self) -> DataError:
        """What was wrong with the first game; the unfinished store goes, it has nothing to keep."""
        read = sum(entry.games for entry in self.finished)
        reason = self.quarantine.first_reason()
        first = f"; the first: {reason}" if reason else ""
        self.work.remove_store()
        removed = {
            text: sum(entry.filtered.get(text, 0) for entry in self.finished) for text in self.filter_texts
        }
        told = "".join(f"; {text}: removed {count}" for text, count in removed.items())
        return DataError(
            f"{self.sources[0].path}: no game could be imported from {len(self.sources)} files"
            f" ({read} games found{told}{first})"
        )

    def _read(self, workers: int, bar: tqdm[Any]) -> None:
        bytes_read = _ByteCount()
        bytes_read.add(sum(source.size_bytes for source in self.sources[: self.place.source_index]))
        items = self.kind.parse(
            self.sources,
            workers=workers,
            count_bytes=bytes_read.add,
            first_source=self.place.source_index,
            skip_bytes=self.place.offset,
        )
        begin, games_at_begin = time.monotonic(), self._games_read()
        with closing(items):
            while (item := self._next(items)) is not None:
                if isinstance(item, SourceEnd):
                    self._end_source(item)
                else:
                    self._take(item)
                games = self._games_read()
                per_second = (games - games_at_begin) / (time.monotonic() - begin)
                bar.set_postfix_str(f"{games} games, {per_second:.0f} games/s", refresh=False)
                bar.update(bytes_read.take())

    def _next(self, items: Iterator[ParsedChunk[P] | SourceEnd]) -> ParsedChunk[P] | SourceEnd | None:
        try:
            return next(items, None)
        except DataError as error:
            games = self.place.tally.games
            if not games:
                raise
            raise DataError(f"{error} ({games} games of it read before)") from error

    def _games_read(self) -> int:
        return self.games_finished + self.place.tally.games

    def _take(self, chunk: ParsedChunk[P]) -> None:
        """Rows to the writer, faults to the quarantine; a full shard is made durable with the journal."""
        games = chunk.games
        name = self.sources[chunk.source_index].name
        self.place = replace(self.place, offset=chunk.offset)
        done = self.place.tally.games - self.place.games  # by the run before; else 0
        num_rows = len(games.game)
        row = int(np.searchsorted(games.game, done))
        while True:
            rows = self.kind.rows(games, name, row, min(row + _ROWS_AT_ONCE, num_rows))
            removed_by = first_to_remove(judged(rows, rows.num_rows, self.filters), rows.num_rows)
            end_row = row + self._add(rows, removed_by)
            is_full = self.writer.is_full
            is_end = end_row == num_rows and not is_full
            end = games.games_read if is_end else int(games.game[end_row - 1]) + 1
            self._note(games, slice(row, end_row), range(done, end), removed_by[: end_row - row])
            if is_end:
                break
            if is_full:
                self.writer.close_shard()
                self._save_journal()
            row, done = end_row, end
        self.place = replace(
            self.place, games=self.place.games + games.games_read, lines=self.place.lines + games.lines
        )

    def _add(self, rows: pa.RecordBatch, removed_by: npt.NDArray[np.uint8]) -> int:
        """Add the rows that pass (0 in removed_by) until the open shard is full; how many are done with."""
        passing = np.flatnonzero(removed_by == 0)
        if len(passing) == rows.num_rows:
            return self.writer.add(rows)
        taken = self.writer.add(rows.filter(pa.array(removed_by == 0)))
        return rows.num_rows if taken == len(passing) else int(passing[taken - 1]) + 1

    def _note(self, games: P, rows: slice, read: range, removed_by: npt.NDArray[np.uint8]) -> None:
        """Count the games `read` of a chunk, which are `rows` and the quarantined ones among them."""
        source = self.sources[self.place.source_index]
        first, last = (int(np.searchsorted(games.faulty_game, game)) for game in (read.start, read.stop))
        self.quarantine.add(games, range(first, last), source.name, self.place.games, self.place.lines)
        passes = removed_by == 0
        plies = np.diff(games.moves_offset[rows.start : rows.stop + 1])
        removed = np.bincount(removed_by, minlength=len(self.filter_texts) + 1)[1:].tolist()
        kinds, counts = np.unique(games.fault[first:last], return_counts=True)
        tally = Tally(
            games=len(read),
            imported=int(np.count_nonzero(passes)),
            plies=int(plies[passes].sum()),
            contradictions=int(np.count_nonzero(games.contradiction[rows][passes])),
            quarantined={
                self.kind.name_of_fault(kind): count
                for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
            },
            filtered=dict(zip(self.filter_texts, removed, strict=True)),
        )
        self.place = replace(self.place, tally=self.place.tally.plus(tally))

    def _end_source(self, end: SourceEnd) -> None:
        source, tally = self.sources[end.source_index], self.place.tally
        entry = SourceEntry(
            name=source.name,
            size_bytes=source.size_bytes,
            sha256=end.sha256,
            games=tally.games,
            imported=tally.imported,
            plies=tally.plies,
            quarantined=tally.quarantined,
            contradictions=tally.contradictions,
            filtered=tally.filtered,
        )
        self.finished.append(entry)
        self.games_finished += entry.games
        self.place = Place(source_index=end.source_index + 1)

    def _save_journal(self) -> None:
        self.journal = replace(
            self.journal,
            shards=tuple(self.writer.shards),
            finished=tuple(self.finished),
            place=self.place,
            quarantine_size_bytes=self.quarantine.make_durable(),
        )
        self.journal.save(self.work.journal)


class _ByteCount:
    """Bytes that many threads report and one thread shows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes += num_bytes

    def take(self) -> int:
        with self._lock:
            taken, self._num_bytes = self._num_bytes, 0
        return taken
