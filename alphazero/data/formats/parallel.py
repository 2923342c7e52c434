"""Sources parsed on all cores, told in order: one reading task a file, many parsing tasks.

Memory is bounded however large the files are: only so many chunks are in flight. The file whose games are
needed next has a share of its own, so that files read ahead cannot starve it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

_SOURCES_AHEAD = 4  # files queued for each worker


class DescribedFault(Protocol):
    """A game that cannot be replayed: where the fault is, what kind it is, and the reason for people."""

    @property
    def game(self) -> int: ...

    @property
    def line(self) -> int: ...

    @property
    def ply(self) -> int: ...

    @property
    def fault(self) -> Any: ...  # noqa: ANN401 - an enumeration of the core

    @property
    def reason(self) -> str: ...


class ParsedGames(Protocol):
    """What the core made of a chunk: as _core.PgnGames has it."""

    @property
    def game(self) -> npt.NDArray[np.int32]: ...

    @property
    def moves_offset(self) -> npt.NDArray[np.int32]: ...

    @property
    def contradiction(self) -> npt.NDArray[np.uint8]: ...

    @property
    def faulty_game(self) -> npt.NDArray[np.int32]: ...

    @property
    def fault(self) -> npt.NDArray[np.uint8]: ...

    @property
    def quarantined(self) -> Sequence[DescribedFault]: ...

    @property
    def games_read(self) -> int: ...

    @property
    def lines(self) -> int: ...


G = TypeVar("G", bound=ParsedGames)
C = TypeVar("C")


@dataclass(frozen=True)
class ParsedChunk(Generic[G]):
    """The games of a chunk of source `source_index`, at `offset` bytes of it."""

    source_index: int
    offset: int
    games: G


@dataclass(frozen=True)
class SourceEnd:
    """Source `source_index` has been read in full; the sha256 is of the file itself."""

    source_index: int
    sha256: str


class SourceChunks(Protocol[C, G]):
    """One source to be read."""

    @property
    def source_index(self) -> int: ...

    def items(self) -> Generator[C | SourceEnd, None, None]:
        """Its chunks in order, then its end. Raises DataError."""
        ...

    def parse(self, chunk: C) -> ParsedChunk[G]:
        """The games of a chunk; called on any thread. Raises DataError."""
        ...


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


class _SourceTask(Generic[C, G]):
    """Reads one source and queues what becomes of it, in order: futures of games, then the end or a fault."""

    def __init__(self, chunks: SourceChunks[C, G], parsers: ThreadPoolExecutor, budget: _ChunkBudget) -> None:
        self._chunks = chunks
        self._parsers = parsers
        self._budget = budget
        self._queue: queue.SimpleQueue[Future[ParsedChunk[G]] | SourceEnd | BaseException] = (
            queue.SimpleQueue()
        )

    def read(self) -> None:
        """Runs in a thread of its own; each chunk is allowed for before it is read."""
        try:
            with closing(self._chunks.items()) as items:
                while True:
                    self._budget.acquire(self._chunks.source_index)
                    item = next(items)
                    if isinstance(item, SourceEnd):
                        self._budget.release()
                        self._queue.put(item)
                        return
                    self._queue.put(self._parsers.submit(self._chunks.parse, item))
        except BaseException as error:
            self._queue.put(error)  # raised where the games are waited for

    def items(self) -> Iterator[ParsedChunk[G] | SourceEnd]:
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


def parse_in_order(
    sources: Sequence[SourceChunks[C, G]], workers: int
) -> Generator[ParsedChunk[G] | SourceEnd, None, None]:
    """The games of sources, in order, each source's chunks and then its end.

    One worker is the calling thread. Raises DataError where the fault stands in the order of the sources.
    """
    return _parse_on_threads(sources, workers) if workers > 1 else _parse_here(sources)


def _parse_here(sources: Sequence[SourceChunks[C, G]]) -> Generator[ParsedChunk[G] | SourceEnd, None, None]:
    for source in sources:
        with closing(source.items()) as items:
            for item in items:
                yield item if isinstance(item, SourceEnd) else source.parse(item)


def _parse_on_threads(
    sources: Sequence[SourceChunks[C, G]], workers: int
) -> Generator[ParsedChunk[G] | SourceEnd, None, None]:
    budget = _ChunkBudget(workers + 1)
    readers = ThreadPoolExecutor(workers, "import-read")
    parsers = ThreadPoolExecutor(workers, "import-parse")
    waiting = deque(sources)
    tasks: deque[_SourceTask[C, G]] = deque()
    try:
        for head in sources:
            while waiting and len(tasks) < _SOURCES_AHEAD * workers:
                tasks.append(_SourceTask(waiting.popleft(), parsers, budget))
                readers.submit(tasks[-1].read)
            budget.set_head(head.source_index)
            yield from tasks.popleft().items()
    finally:
        budget.close()
        readers.shutdown(wait=True, cancel_futures=True)
        parsers.shutdown(wait=True, cancel_futures=True)
