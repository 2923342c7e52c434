"""Rows within a time budget, the most important first; what does not fit is left out and named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from alphazero.base.text import counted
from benchmarks.gpu_rows.crew import Worker
from benchmarks.gpu_rows.row import Result, Row

# A row may take so many times what it should before it is ended, and at least so many seconds.
PATIENCE = 4.0
LEAST_LIMIT_S = 30.0


@dataclass
class Budget:
    """Seconds for all rows, and how rows of each pace compare with what was expected of them."""

    total_s: float
    started: float = field(default_factory=time.monotonic)
    _measured: dict[str, tuple[float, float]] = field(default_factory=dict)

    def left_s(self) -> float:
        """Seconds that are left."""
        return self.total_s - self.spent_s()

    def spent_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def expected_s(self, row: Row) -> float:
        """What a row will take, by the rows of its pace so far."""
        taken, expected = self._measured.get(row.pace or row.kind, (1.0, 1.0))
        return row.expected_s * taken / expected

    def learn(self, row: Row, seconds: float) -> None:
        """A row has taken so long."""
        taken, expected = self._measured.get(row.pace or row.kind, (0.0, 0.0))
        self._measured[row.pace or row.kind] = (taken + seconds, expected + row.expected_s)


def measure_rows(
    rows: Iterable[Row],
    budget: Budget,
    on_result: Callable[[Result], None],
    new_worker: Callable[[], Worker] = Worker,
) -> None:
    """Measure what fits, in the order given; every row is told to `on_result`, the dropped ones too."""
    worker: Worker | None = None
    try:
        for row in rows:
            expected_s, left_s = budget.expected_s(row), budget.left_s()
            if expected_s > left_s:
                why = f"expected to take {expected_s:.0f} s, {max(left_s, 0):.0f} s were left"
                on_result(Result(row, dropped=why))
                continue
            begun = time.monotonic()
            error = ""
            if worker is None:
                worker = new_worker()
                error = worker.wait_until_ready()
            result = Result(row, error=error) if error else _measured(worker, row, expected_s, budget)
            result = replace(result, seconds=time.monotonic() - begun)
            if result.figures:
                budget.learn(row, result.seconds)
            else:  # CUDA may be of no more use in that process
                worker.end()
                worker = None
            on_result(result)
    finally:
        if worker is not None:
            worker.end()


def _measured(worker: Worker, row: Row, expected_s: float, budget: Budget) -> Result:
    patience_s, left_s = max(PATIENCE * expected_s, LEAST_LIMIT_S), budget.left_s()
    answer = worker.measure(row.kind, dict(row.settings), max(1.0, min(patience_s, left_s)))
    if answer.get("over_time") and left_s < patience_s:
        return Result(row, dropped=f"not done in the {left_s:.0f} s that were left")
    return Result(row, figures=answer.get("figures", {}), error=answer.get("error", ""))


def summary(results: Iterable[Result], budget: Budget) -> dict[str, object]:
    """How many rows were measured, failed and left out, and how long all took."""
    found = list(results)
    dropped = [one.row.name for one in found if one.dropped]
    failed = [one.row.name for one in found if one.error]
    return {
        "budget_s": budget.total_s,
        "spent_s": round(budget.spent_s(), 1),
        "rows_measured": len(found) - len(dropped) - len(failed),
        "rows_failed": failed,
        "rows_dropped": dropped,
        "told": f"{counted(len(found), 'row')}: {len(failed)} failed, {len(dropped)} left out for time",
    }
