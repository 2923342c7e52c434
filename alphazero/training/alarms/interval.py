"""A stretch of training that rules judge: log intervals, put together until they last long enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.training.usage.host_board import HostNow


@dataclass(frozen=True)
class Interval:
    """steps with `positions` in all, which took `seconds`; work_s_R and hosts as in IntervalUsage.

    passes_R: micro-batches of each rank. hosts: as they were at the end. remaining_s: until the run's end.
    """

    steps: int
    positions: int
    seconds: float
    work_s_R: tuple[float, ...]
    passes_R: tuple[int, ...]
    hosts: tuple[HostNow, ...]
    remaining_s: float

    def followed_by(self, later: Interval) -> Interval:
        """Both as one."""
        return Interval(
            self.steps + later.steps,
            self.positions + later.positions,
            self.seconds + later.seconds,
            tuple(_sums(self.work_s_R, later.work_s_R)),
            tuple(map(int, _sums(self.passes_R, later.passes_R))),
            later.hosts,
            later.remaining_s,
        )


def _sums(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(left, right, strict=True)]
