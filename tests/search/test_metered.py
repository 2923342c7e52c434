"""Evaluations and the time in them, and the speed that follows."""

import time

import numpy as np
import pytest

from alphazero.search.metered import Effort, Meter, MeteredEvaluator, Speed


class SlowEvaluator:
    """Takes time to begin a batch, and as long for its result."""

    batch_size = 8
    batches_ahead = 3

    def __init__(self, each_s: float) -> None:
        self.each_s = each_s

    def submit(self, packed, legal_index, legal_offset):
        time.sleep(self.each_s)
        return self

    def result(self):
        time.sleep(self.each_s)
        return "evaluation"


def test_positions_and_the_time_in_the_evaluator_are_counted_and_nothing_is_changed() -> None:
    meter = Meter()
    evaluator = MeteredEvaluator(SlowEvaluator(0.05), meter)
    assert (evaluator.batch_size, evaluator.batches_ahead) == (8, 3)
    pending = evaluator.submit(np.zeros((5, 4), np.uint8), np.zeros(9, np.int32), np.zeros(6, np.int32))
    assert meter.positions == 5 and meter.seconds >= 0.05
    time.sleep(0.2)  # the search's own time
    assert pending.result() == "evaluation"
    assert meter.positions == 5 and 0.1 <= meter.seconds < 0.2


def test_processes_side_by_side_are_as_fast_as_together_and_the_slowest_one_sets_the_time() -> None:
    speed = Speed.of(20, [Effort(1000, 9.0, 10.0), Effort(500, 3.0, 5.0)])
    assert speed == Speed(7200.0, 150.0, pytest.approx(0.6))
    assert str(speed) == "7,200 games/hour, 150 evaluations/s, 60% of the time in evaluations"
    assert Speed.of(0, [Effort()]).games_per_hour == 0
