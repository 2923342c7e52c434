"""An evaluator that counts what it evaluates and the time spent in it; the speed of games that follows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.games.core_types import BatchEvaluation, Indices, Positions
from alphazero.search.batched import Pending, PoolEvaluator


@dataclass
class Meter:
    """positions: evaluated. seconds: in the evaluator, computing on a CPU, waiting for a GPU."""

    positions: int = 0
    seconds: float = 0.0


class MeteredEvaluator:
    """An evaluator as it is, read by a meter."""

    def __init__(self, evaluator: PoolEvaluator, meter: Meter) -> None:
        self.batch_size, self.batches_ahead = evaluator.batch_size, evaluator.batches_ahead
        self._evaluator = evaluator
        self._meter = meter

    def submit(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> Pending:
        """As the evaluator."""
        begin = time.monotonic()
        pending = self._evaluator.submit(packed, legal_index, legal_offset)
        self._meter.positions += len(packed)
        self._meter.seconds += time.monotonic() - begin
        return _MeteredBatch(pending, self._meter)


@dataclass(frozen=True)
class _MeteredBatch:
    pending: Pending
    meter: Meter

    def result(self) -> BatchEvaluation:
        begin = time.monotonic()
        evaluation = self.pending.result()
        self.meter.seconds += time.monotonic() - begin
        return evaluation


@dataclass(frozen=True)
class Effort:
    """What one process took for its games. evaluating_s: as Meter.seconds. seconds: of play in all."""

    evaluations: int = 0
    evaluating_s: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Speed:
    """Of all processes together. evaluating_share: of their time, the part in the evaluator."""

    games_per_hour: float
    evaluations_per_s: float
    evaluating_share: float

    @classmethod
    def of(cls, games: int, efforts: Sequence[Effort]) -> Speed:
        """games: that ended. Processes play at the same time, so the slowest one's time counts."""
        seconds = max((effort.seconds for effort in efforts), default=0.0) or 1e-9
        evaluations = sum(effort.evaluations for effort in efforts)
        evaluating_s = sum(effort.evaluating_s for effort in efforts)
        share = evaluating_s / (seconds * max(1, len(efforts)))
        return cls(3600 * games / seconds, evaluations / seconds, share)

    def __str__(self) -> str:
        """As printed."""
        return (
            f"{self.games_per_hour:,.0f} games/hour, {self.evaluations_per_s:,.0f} evaluations/s, "
            f"{self.evaluating_share:.0%} of the time in evaluations"
        )
