"""PGN sources parsed on all cores, told in order: one decompressing task a file, many parsing tasks.

Memory is bounded however large the files are: only so many chunks of text are in flight. The file
whose games are needed next has a share of its own, so that files read ahead cannot starve it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from alphazero import _core
from alphazero.data.pgn.source import Source, SourceReader
from alphazero.errors import DataError

CHUNK_BYTES = 4 << 20  # text a parsing task gets
LARGEST_GAME_BYTES = 1 << 26  # text without a second game beyond this is no PGN

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
    """How many chunks may be in flight: `limit`, and as many again for the source that is needed next."""

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
            parts, wanted = [text], min(2 * size, max(size, LARGEST_GAME_BYTES) + 1)
            continue
        yield TextChunk(text, cut, offset)
        parts, size, wanted = [text[cut:]], size - cut, chunk_bytes
        offset += cut
    if size:
        yield TextChunk(b"".join(parts), size, offset)


@dataclass(frozen=True)
class _SourceText:
    """One source to be read, from `skip_bytes` of its text on."""

    source_index: int
    source: Source
    skip_bytes: int
    chunk_bytes: int
    count_bytes: Callable[[int], None]

    def items(self) -> Generator[TextChunk | SourceEnd, None, None]:
        """The text in chunks, then the end. Raises DataError."""
        with closing(SourceReader(self.source, self.count_bytes)) as reader:
            yield from cut_chunks(reader, self.skip_bytes, self.chunk_bytes)
            yield SourceEnd(self.source_index, reader.sha256())

    def parse(self, chunk: TextChunk) -> ParsedChunk:
        return ParsedChunk(self.source_index, chunk.offset, _core.parse_pgn(chunk.text, 0, chunk.end))


class _SourceTask:
    """Reads one source and queues what becomes of it, in order: futures of games, then the end or a fault."""

    def __init__(self, text: _SourceText, parsers: ThreadPoolExecutor, budget: _ChunkBudget) -> None:
        self._text = text
        self._parsers = parsers
        self._budget = budget
        self._queue: queue.SimpleQueue[Future[ParsedChunk] | SourceEnd | BaseException] = queue.SimpleQueue()

    def read(self) -> None:
        """Runs in a thread of its own; each chunk is allowed for before it is read."""
        try:
            with closing(self._text.items()) as items:
                while True:
                    self._budget.acquire(self._text.source_index)
                    item = next(items)
                    if isinstance(item, SourceEnd):
                        self._budget.release()
                        self._queue.put(item)
                        return
                    self._queue.put(self._parsers.submit(self._text.parse, item))
        except BaseException as error:
            self._queue.put(error)  # raised where the games are waited for

    def items(self) -> Iterator[ParsedChunk | SourceEnd]:
        """What was queued, as it comes."""
        while True:
            item = self._queue.get()
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, SourceEnd):
                yield item
                return
            parsed = item.result()
            self._budget.release()
            yield parsed


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

    The first `skip_bytes` of the first source's text are passed over. One worker is the calling thread;
    with more, `count_bytes` is called from many threads. Raises DataError where the fault stands in the
    order of the sources.
    """
    texts = [
        _SourceText(index, source, skip_bytes if index == first_source else 0, chunk_bytes, count_bytes)
        for index, source in enumerate(sources)
    ][first_source:]
    return _parse_on_threads(texts, workers) if workers > 1 else _parse_here(texts)


def _parse_here(texts: Sequence[_SourceText]) -> Generator[ParsedChunk | SourceEnd, None, None]:
    for text in texts:
        with closing(text.items()) as items:
            for item in items:
                yield item if isinstance(item, SourceEnd) else text.parse(item)


def _parse_on_threads(
    texts: Sequence[_SourceText], workers: int
) -> Generator[ParsedChunk | SourceEnd, None, None]:
    budget = _ChunkBudget(workers + 1)
    readers = ThreadPoolExecutor(workers, "pgn-read")
    parsers = ThreadPoolExecutor(workers, "pgn-parse")
    waiting = deque(texts)
    tasks: deque[_SourceTask] = deque()
    try:
        for head in texts:
            while waiting and len(tasks) < _SOURCES_AHEAD * workers:
                tasks.append(_SourceTask(waiting.popleft(), parsers, budget))
                readers.submit(tasks[-1].read)
            budget.set_head(head.source_index)
            yield from tasks.popleft().items()
    finally:
        budget.close()
        readers.shutdown(wait=True, cancel_futures=True)
        parsers.shutdown(wait=True, cancel_futures=True)
