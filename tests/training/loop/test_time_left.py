"""How long a run will still take."""

import pytest

from alphazero.training.loop.progress import STEPS, TimeLeft


def test_nothing_is_said_before_the_first_steps():
    assert TimeLeft(100).seconds(0) is None


def test_the_first_stretch_counts_until_there_is_another():
    left = TimeLeft(100)
    left.add(STEPS, 60.0, units=10)
    assert left.seconds(10) == pytest.approx(90 * 6.0)
    left.add(STEPS, 10.0, units=10)
    assert left.seconds(20) == pytest.approx(80.0)


def test_a_burst_of_load_moves_it_by_a_tenth_of_what_the_last_stretch_alone_would_say():
    left = TimeLeft(1000)
    for _ in range(30):
        left.add(STEPS, 10.0, units=10)
    left.add(STEPS, 100.0, units=10)
    calm, burst = 1000 - 310, (1000 - 310) * 10
    assert calm < left.seconds(310) < calm + 0.11 * burst
    for _ in range(20):
        left.add(STEPS, 100.0, units=10)
    assert left.seconds(510) == pytest.approx(490 * 10, rel=0.15)


def test_pauses_that_still_come_are_counted():
    left = TimeLeft(100)
    left.add("self-play", 30.0, every=20)  # before steps 1, 21, 41, 61 and 81
    left.add(STEPS, 10.0, units=10)
    left.add(STEPS, 10.0, units=10)
    assert left.seconds(20) == pytest.approx(80 + 4 * 30)
    left.add("self-play", 30.0, every=20)
    assert left.seconds(21) == pytest.approx(79 + 3 * 30)
    assert left.seconds(81) == pytest.approx(19.0)
    assert left.seconds(100) == 0
