"""Sources parsed on all cores and delivered in order, whatever their format.

One task reads each file and many tasks parse. Memory is bounded however large the files are, because the
number of chunks in flight is. The file whose games are needed next has a separate share, so that files read
ahead cannot starve it.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, TypeVar

import pyarrow as pa

from alphazero.data.formats.files import Kind, Source, find_sources

_SOURCES_AHEAD = 4  # files queued for each worker


G = TypeVar("G")
C = TypeVar("C")


@dataclass(frozen=True)
class SourceEnd:
    """A source has been read; the sha256 is that of the file itself. fault: why not to its end."""

    sha256: str
    fault: str = ""


class Format(ABC, Generic[C, G]):
    """How files of one kind become rows of a store.

    game: that all of them hold. chunk_bytes: of a file, what a task parses at once unless another size is
    given.
    """

    kind: Kind
    game: str
    chunk_bytes: int

    def find(self, paths: Sequence[Path], say: Callable[[str], None]) -> list[Source]:
        """The sources at these paths; `say` receives what is passed over. Raises DataError."""
        return find_sources(paths, self.kind, say)

    @abstractmethod
    def chunks(
        self, source: Source, count_bytes: Callable[[int], None], chunk_bytes: int
    ) -> Generator[C | SourceEnd, None, None]:
        """A source in chunks of whole games, then its end. Raises DataError.

        count_bytes receives the number of bytes of each read, from any thread.
        """

    @abstractmethod
    def parse(self, chunk: C) -> G:
        """The games of a chunk; called on any thread. Raises DataError."""

    @abstractmethod
    def rows(self, games: G, source_name: str, begin: int, end: int) -> pa.RecordBatch:
        """Parsed games begin ... end - 1 as rows (row_schema); no move is copied."""


class _ChunkBudget:
    """How many chunks may be in flight: `limit`, and as many again for the source that is needed next."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._head = 0
        self._closed = False
        self._changed = threading.Condition()

    def acquire(self, source: int) -> bool:
        """Wait for room for one more; False when the caller has stopped asking for games."""

        def is_free() -> bool:
            limit = self._limit * 2 if source == self._head else self._limit
            return self._closed or self._used < limit

        with self._changed:
            self._changed.wait_for(is_free)
            self._used += 1
            return not self._closed

    def release(self) -> None:
        with self._changed:
            self._used -= 1
            self._changed.notify_all()

    def set_head(self, source: int) -> None:
        with self._changed:
            self._head = source
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


@dataclass(frozen=True)
class _SourceTask(Generic[C, G]):
    """Reads one source and queues its parsed chunks in order: futures of games, then the end or a fault."""

    number: int
    kind: Format[C, G]
    parsers: ThreadPoolExecutor
    budget: _ChunkBudget
    queue: SimpleQueue[Future[G] | SourceEnd | BaseException] = field(default_factory=SimpleQueue)

    def read(self, chunks: Generator[C | SourceEnd, None, None]) -> None:
        """Runs in a separate thread; each chunk is allowed for before it is read."""
        try:
            with closing(chunks):
                while self.budget.acquire(self.number):
                    item = next(chunks)
                    if isinstance(item, SourceEnd):
                        self.budget.release()
                        self.queue.put(item)
                        return
                    self.queue.put(self.parsers.submit(self.kind.parse, item))
        except BaseException as error:
            self.queue.put(error)  # raised where the games are waited for

    def items(self) -> Iterator[G | SourceEnd]:
        """What was queued, in that order."""
        while True:
            item = self.queue.get()
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, SourceEnd):
                yield item
                return
            parsed = item.result()
            self.budget.release()
            yield parsed


def parse_in_order(
    kind: Format[C, G],
    sources: Sequence[Source],
    workers: int,
    count_bytes: Callable[[int], None],
    chunk_bytes: int = 0,
) -> Generator[G | SourceEnd, None, None]:
    """The games of the sources in order: each source's chunks and then its end.

    workers: threads that parse, and as many that read; one is the calling thread. chunk_bytes: 0 takes the
    format's own. Raises DataError where the fault occurs in the order of the sources.
    """
    size = chunk_bytes or kind.chunk_bytes
    chunks = [kind.chunks(source, count_bytes, size) for source in sources]
    if workers > 1:
        yield from _parse_on_threads(kind, chunks, workers)
        return
    for of_source in chunks:
        with closing(of_source):
            for item in of_source:
                yield item if isinstance(item, SourceEnd) else kind.parse(item)


def _parse_on_threads(
    kind: Format[C, G], sources: Sequence[Generator[C | SourceEnd, None, None]], workers: int
) -> Generator[G | SourceEnd, None, None]:
    budget = _ChunkBudget(workers + 1)
    readers = ThreadPoolExecutor(workers, "import-read")
    parsers = ThreadPoolExecutor(workers, "import-parse")
    waiting = deque(enumerate(sources))
    tasks: deque[_SourceTask[C, G]] = deque()
    try:
        for head in range(len(sources)):
            while waiting and len(tasks) < _SOURCES_AHEAD * workers:
                number, chunks = waiting.popleft()
                tasks.append(_SourceTask(number, kind, parsers, budget))
                readers.submit(tasks[-1].read, chunks)
            budget.set_head(head)
            yield from tasks.popleft().items()
    finally:
        budget.close()
        readers.shutdown(wait=True, cancel_futures=True)
        parsers.shutdown(wait=True, cancel_futures=True)
