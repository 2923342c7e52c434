"""Rates and lengths by the clock, by the CPU time of one core, and on a device."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

SHORTEST_S = 0.3
WARM_UPS, FEWEST = 2, 5


@contextmanager
def on_cores(number: int | None) -> Iterator[None]:
    """Keep all threads and processes that start inside on so many cores; None: on all."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def rate(work: Callable[[], float], least_s: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """What `work` returns, per second of this clock; it is repeated for at least `least_s`."""
    done, begin = 0.0, clock()
    while (seconds := clock() - begin) < least_s or not done:
        done += work()
    return done / seconds


def cpu_rate(work: Callable[[], float], least_s: float = SHORTEST_S) -> float:
    """As `rate`, by CPU time, so that other programs on the machine matter less."""
    return rate(work, least_s, time.process_time)


def medians(rounds: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure over rounds that have the same ones."""
    found = list(rounds)
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def pass_times(one_pass: Callable[[], object], device: torch.device, least_s: float) -> list[float]:
    """Seconds of each pass until the device is done, for about `least_s` after some that warm up."""

    def timed() -> float:
        begin = time.perf_counter()
        one_pass()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    for _ in range(WARM_UPS):
        timed()
    times: list[float] = []
    while sum(times) < least_s or len(times) < FEWEST:
        times.append(timed())
    return times
