"""PGN sources parsed on all cores, told in order: one decompressing task a file, many parsing tasks.

Memory is bounded however large the files are: only so many chunks of text are in flight. The file
whose games are wanted next has a share of its own, so that files read ahead cannot starve it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from alphazero import _core
from alphazero.data.source import Source, SourceReader
from alphazero.errors import DataError

CHUNK_BYTES = 4 << 20  # text a parsing task gets
LARGEST_GAME_BYTES = 1 << 28  # text without a second game beyond this is no PGN

_SOURCES_AHEAD = 4  # files queued for each worker


@dataclass(frozen=True)
class TextChunk:
    """Whole games: text[:end], at `offset` bytes of the source's text."""

    text: bytes
    end: int
    offset: int


@dataclass(frozen=True)
class ParsedChunk:
    """The games of a chunk of source `source_index`, at `offset` bytes of its text."""

    source_index: int
    offset: int
    games: _core.PgnGames


@dataclass(frozen=True)
class SourceEnd:
    """Source `source_index` has been read in full; the sha256 is of the file itself."""

    source_index: int
    sha256: str


class _ClosedError(Exception):
    """Nobody waits for the games any longer."""


class _ChunkBudget:
    """How many chunks may be in flight: `limit`, and as many again for the source that is wanted next."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._head = 0
        self._closed = False
        self._changed = threading.Condition()

    def acquire(self, source_index: int) -> None:
        def is_free() -> bool:
            limit = self._limit * 2 if source_index == self._head else self._limit
            return self._closed or self._used < limit

        with self._changed:
            self._changed.wait_for(is_free)
            if self._closed:
                raise _ClosedError
            self._used += 1

    def release(self) -> None:
        with self._changed:
            self._used -= 1
            self._changed.notify_all()

    def set_head(self, source_index: int) -> None:
        with self._changed:
            self._head = source_index
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def cut_chunks(reader: SourceReader, skip_bytes: int, chunk_bytes: int) -> Iterator[TextChunk]:
    """Cut a source's text where games begin, after its first `skip_bytes` (a game begins there)."""
    parts: list[bytes] = []
    offset, size, wanted, to_skip = skip_bytes, 0, chunk_bytes, skip_bytes
    for block in reader.blocks(chunk_bytes):
        skipped = min(to_skip, len(block))
        to_skip -= skipped
        parts.append(block[skipped:] if skipped else block)
        size += len(block) - skipped
        if size < wanted:
            continue
        text = b"".join(parts)
        cut = _core.last_game_begin(text)
        if cut == 0:
            if size > LARGEST_GAME_BYTES:
                raise DataError(f"{reader.source.path}: a game of over {size} bytes at byte {offset}: no PGN")
            parts, wanted = [text], 2 * size
            continue
        yield TextChunk(text, cut, offset)
        parts, size, wanted = [text[cut:]], size - cut, chunk_bytes
        offset += cut
    if size:
        yield TextChunk(b"".join(parts), size, offset)


class _SourceTask:
    """Reads one source and queues what becomes of it, in order: futures of games, then the end."""

    def __init__(self, source_index: int, source: Source, skip_bytes: int) -> None:
        self.source_index = source_index
        self.source = source
        self.skip_bytes = skip_bytes
        self.queue: queue.SimpleQueue[Future[ParsedChunk] | SourceEnd | BaseException] = queue.SimpleQueue()

    def run(
        self,
        parsers: ThreadPoolExecutor,
        budget: _ChunkBudget,
        count_bytes: Callable[[int], None],
        chunk_bytes: int,
    ) -> None:
        try:
            reader = SourceReader(self.source, count_bytes)
            try:
                chunks = cut_chunks(reader, self.skip_bytes, chunk_bytes)
                while True:
                    budget.acquire(self.source_index)
                    chunk = next(chunks, None)
                    if chunk is None:
                        budget.release()
                        break
                    self.queue.put(parsers.submit(self._parse, chunk))
                self.queue.put(SourceEnd(self.source_index, reader.sha256()))
            finally:
                reader.close()
        except OSError as error:
            self.queue.put(DataError(f"{self.source.path}: cannot read: {error.strerror}"))
        except BaseException as error:
            self.queue.put(error)  # raised in the thread that waits for the games

    def _parse(self, chunk: TextChunk) -> ParsedChunk:
        games = _core.parse_pgn(chunk.text, 0, chunk.end)
        return ParsedChunk(self.source_index, chunk.offset, games)


def parse_sources(
    sources: Sequence[Source],
    *,
    workers: int,
    count_bytes: Callable[[int], None],
    first_source: int = 0,
    skip_bytes: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> Generator[ParsedChunk | SourceEnd, None, None]:
    """The games of sources[first_source:], in order, each source's chunks and then its end.

    The first `skip_bytes` of the first source's text are passed over. `count_bytes` is called from
    many threads. Raises DataError where the fault stands in the order of the sources.
    """
    budget = _ChunkBudget(workers + 1)
    pending: deque[_SourceTask] = deque()
    readers = ThreadPoolExecutor(workers, "pgn-read")
    parsers = ThreadPoolExecutor(workers, "pgn-parse")
    try:
        for head in range(first_source, len(sources)):
            while head + len(pending) < min(head + _SOURCES_AHEAD * workers, len(sources)):
                index = head + len(pending)
                skip = skip_bytes if index == first_source else 0
                pending.append(_SourceTask(index, sources[index], skip))
                readers.submit(pending[-1].run, parsers, budget, count_bytes, chunk_bytes)
            budget.set_head(head)
            yield from _items(pending.popleft(), budget)
    finally:
        budget.close()
        readers.shutdown(wait=True, cancel_futures=True)
        parsers.shutdown(wait=True, cancel_futures=True)


def _items(task: _SourceTask, budget: _ChunkBudget) -> Iterator[ParsedChunk | SourceEnd]:
    while True:
        item = task.queue.get()
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, SourceEnd):
            yield item
            return
        parsed = item.result()
        budget.release()
        yield parsed
