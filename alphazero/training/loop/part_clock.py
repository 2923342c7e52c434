"""How long each rank spends in which part of training, and the shares of the job's time that follow."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Part(IntEnum):
    """What the trainer is doing, in the order of the numbers that ranks exchange."""

    HOST = 0  # none of the others: Python between them, figures, lines
    COMPUTE = 1  # passes, clipping, the optimizer's step
    DATA = 2  # waiting for the loader
    MESSAGES = 3  # small messages over Exchange
    GRADIENTS = 4  # all-reduce and what else moves gradients, weights and statistics between ranks
    CHECKPOINT = 5  # copying the state that a writer then writes beside training
    APART = 6  # no part of training: validation, self-play


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

    moment: gives the present moment, an event on the device or a HostMoment; the host never waits for one.
    """

    def __init__(self, moment: Callable[[], Any]) -> None:
        self._moment = moment
        self._part = Part.HOST
        self._since = moment()
        self._unread: deque[tuple[Part, Any, Any]] = deque()
        self._seconds = [0.0] * len(Part)

    @contextlib.contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """The block is `part`; blocks may stand within each other, the innermost counts."""
        before = self._part
        self._enter(part)
        try:
            yield
        finally:
            self._enter(before)

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

    def take(self) -> list[float]:
        """Seconds by Part since the last call, as far as the device has come; the rest is in the next."""
        self._enter(self._part)
        seconds, self._seconds = self._seconds, [0.0] * len(Part)
        return seconds

    def _enter(self, part: Part) -> None:
        now = self._moment()
        self._unread.append((self._part, self._since, now))
        self._part, self._since = part, now
        while self._unread and self._unread[0][2].query():
            done, begin, end = self._unread.popleft()
            self._seconds[done] += begin.elapsed_time(end) / 1000


def make_part_clock(device: torch.device) -> PartClock:
    """The clock of a rank that computes on `device`."""
    return PartClock(_device_moment if device.type == "cuda" else lambda: HostMoment(time.perf_counter()))


class Cause(Enum):
    """What a device waits for, as it is reported."""

    DATA = "data"
    COMMUNICATION = "communication"
    HOST = "host launches"
    CHECKPOINT = "checkpoints"
    SELF_PLAY = "self-play"


# Shares of the training time by name, which add up to 1 (docs/runs.md defines each).
TimeShares = Mapping[str, float]
# What keeps a device from computing, by the share that it takes.
CAUSES = {
    "data_wait": Cause.DATA,
    "communication": Cause.COMMUNICATION,
    "host_overhead": Cause.HOST,
    "checkpoint": Cause.CHECKPOINT,
}


def waits_in(shares: TimeShares) -> dict[Cause, float]:
    """The shares in which a device does not compute."""
    return {cause: shares[name] for name, cause in CAUSES.items()}


@dataclass(frozen=True)
class JobShares:
    """The mean over ranks; and the shares of the rank that communicates least, for which the others wait.

    gradients: of the mean, what NCCL's kernels do, which a driver takes for work.
    """

    mean: TimeShares
    slowest_rank: int
    slowest: TimeShares
    gradients: float


def job_shares(seconds_RP: torch.Tensor, idle: float | None = None) -> JobShares | None:
    """From each rank's seconds by Part; None where no rank has trained yet.

    idle: the share of the time in which the GPUs did not compute, where it is known. What of it no other part
    explains is time in which kernels were not launched fast enough: it moves from compute to host_overhead.
    """
    seconds_RP = seconds_RP.clone()
    seconds_RP[:, Part.APART] = 0.0
    if not bool((seconds_RP.sum(1) > 0).all()):
        return None
    shares_RP = seconds_RP / seconds_RP.sum(1, keepdim=True)
    mean_P = shares_RP.mean(0)
    gaps = 0.0
    if idle is not None:
        explained = 1.0 - float(mean_P[Part.COMPUTE])
        gaps = max(0.0, idle - explained) / max(float(mean_P[Part.COMPUTE]), 1e-9)
    communication_R = shares_RP[:, Part.MESSAGES] + shares_RP[:, Part.GRADIENTS]
    slowest = int(communication_R.argmin())
    return JobShares(
        mean=_shares(mean_P, gaps),
        slowest_rank=slowest,
        slowest=_shares(shares_RP[slowest], gaps),
        gradients=float(mean_P[Part.GRADIENTS]),
    )


def _shares(parts_P: torch.Tensor, gaps: float) -> TimeShares:
    """gaps: the part of compute in which the device waited for launches."""
    share = parts_P.tolist()
    launching = share[Part.COMPUTE] * min(1.0, gaps)
    return {
        "compute": share[Part.COMPUTE] - launching,
        "data_wait": share[Part.DATA],
        "communication": share[Part.MESSAGES] + share[Part.GRADIENTS],
        "checkpoint": share[Part.CHECKPOINT],
        "host_overhead": share[Part.HOST] + launching,
    }
