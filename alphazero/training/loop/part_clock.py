"""How long a rank spends in which part of training; the observer reads it once an interval."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Part(Enum):
    """What a rank is doing."""

    HOST = "host"  # none of the others: Python between them, figures, lines
    COMPUTE = "compute"  # passes, clipping, the optimizer's step
    DATA = "data"  # waiting for the loader
    MESSAGES = "messages"  # small messages over Exchange
    GRADIENTS = "gradients"  # all-reduce and what else moves gradients, weights and statistics between ranks
    CHECKPOINT = "checkpoint"  # copying the state that a writer then writes beside training
    SELF_PLAY = "self-play"
    WAITING = "waiting for games"  # that actors bring
    APART = "apart"  # no part of training: the start, validation


# The kind of work that begins with a part; within the others it stays as it is.
WORK = {Part.HOST: "training", Part.SELF_PLAY: "self-play", Part.WAITING: "", Part.APART: ""}


@dataclass(frozen=True)
class HostMoment:
    """A moment of the host's clock, with what PartClock asks of a torch.cuda.Event."""

    at_s: float

    def query(self) -> bool:
        """Always over: the host works at once."""
        return True

    def elapsed_time(self, end: HostMoment) -> float:
        """Milliseconds of wall time."""
        return 1000 * (end.at_s - self.at_s)


def _device_moment() -> torch.cuda.Event:
    """An event behind all that the current stream was given so far, over when the device has reached it.

    Where the queue is empty, because the host waits for something, the event is over at once: the time
    between two such events is time in which the device had nothing to do.
    """
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


class PartClock:
    """Sums up the time of each Part; a rank is in exactly one at any moment, so that nothing is missing.

    It begins in Part.APART. work: the kind of work now, for other threads to read. naming: what a block is
    entered with under its part's name; a profile puts its own there (profile.py).
    """

    def __init__(self, moment: Callable[[], Any]) -> None:
        """moment: gives the present moment, an event on the device or a HostMoment; nothing waits for one."""
        self.work = WORK[Part.APART]
        self.naming: Callable[[str], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        self._moment = moment
        self._part = Part.APART
        self._since = moment()
        self._unread: deque[tuple[Part, Any, Any]] = deque()
        self._seconds = dict.fromkeys(Part, 0.0)

    @classmethod
    def on(cls, device: torch.device) -> PartClock:
        """The clock of a rank that computes on `device`."""
        return cls(_device_moment if device.type == "cuda" else lambda: HostMoment(time.perf_counter()))

    @contextlib.contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """The block is `part`; blocks may stand within each other, the innermost counts."""
        before, work = self._part, self.work
        self._enter(part)
        self.work = WORK.get(part, work)
        try:
            with self.naming(part.value):
                yield
        finally:
            self._enter(before)
            self.work = work

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; the time until each one comes is Part.DATA."""
        iterator = iter(items)
        while True:
            with self.part(Part.DATA):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def take(self) -> dict[str, float]:
        """Seconds by part since the last call, as far as the device has come; the rest is in the next."""
        self._enter(self._part)
        seconds, self._seconds = self._seconds, dict.fromkeys(Part, 0.0)
        return {part.value: spent for part, spent in seconds.items()}

    def _enter(self, part: Part) -> None:
        now = self._moment()
        self._unread.append((self._part, self._since, now))
        self._part, self._since = part, now
        while self._unread and self._unread[0][2].query():
            done, begin, end = self._unread.popleft()
            self._seconds[done] += begin.elapsed_time(end) / 1000
