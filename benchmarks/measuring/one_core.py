"""Rates of one core by CPU time, so that other programs on the machine matter less."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHORTEST_S = 0.3


@contextmanager
def one_core() -> Iterator[None]:
    """Keep all threads that start inside on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def rate(work: Callable[[], float], shortest_s: float = SHORTEST_S) -> float:
    """What `work` returns, per second; it is repeated for at least `shortest_s`."""
    done, seconds = 0.0, 0.0
    begin = time.process_time()
    while seconds < shortest_s or not done:
        done += work()
        seconds = time.process_time() - begin
    return done / seconds
