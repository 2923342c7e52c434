"""Items prepared ahead of time by one background thread, through a bounded queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from alphazero.errors import ConfigError

_PUT_INTERVAL_S = 0.1  # how often a producer that waits for room looks whether it should stop

T = TypeVar("T")


class _Failure:
    """What the producer hands over when it could not go on."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _End:
    """What the producer hands over at the end."""


class _Producer(Generic[T]):
    """A thread that fills a bounded queue from an iterator until told to stop."""

    def __init__(self, items: Iterator[T], depth: int) -> None:
        self._items = items
        self._queue: queue.Queue[T | _Failure | _End] = queue.Queue(maxsize=depth)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="alphazero-loader", daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        last: _Failure | _End = _End()
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as error:  # handed to the consumer, who raises it
            last = _Failure(error)
        self._put(last)

    def _put(self, item: T | _Failure | _End) -> bool:
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=_PUT_INTERVAL_S)
            except queue.Full:
                continue
            return True
        return False

    def get(self) -> T | _Failure | _End:
        return self._queue.get()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()


def prefetched(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, up to `depth` of them prepared ahead by a thread.

    The thread starts with the first item asked for and ends with the iterator: at its end, at an error
    (raised here), or when the iterator is closed or dropped.
    """
    if depth < 1:
        raise ConfigError(f"prefetch {depth}: expected at least 1")
    return _drain(items, depth)


def _drain(items: Iterator[T], depth: int) -> Iterator[T]:
    producer = _Producer(items, depth)
    try:
        while True:
            item = producer.get()
            if isinstance(item, _End):
                return
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        producer.close()
