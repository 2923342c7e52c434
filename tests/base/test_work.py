"""How far a piece of work is, in words."""

import pytest

from alphazero.base.log import Work, duration


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def at(seconds: float, **how: object) -> Work:
    clock = Clock()
    work = Work(**{"what": "reading", "clock": clock, **how})
    clock.now += seconds
    return work


def test_work_of_unknown_length_says_how_long_it_goes_on():
    assert at(12.4).line() == "reading: 12 s so far"


def test_work_of_known_length_says_how_fast_it_is_and_how_long_it_takes():
    work = at(10.0, total=300, unit="game")
    work.advance(100)
    assert work.line() == "reading: 100 of 300 games in 10 s | 10/s | about 20 s left"
    assert work.fields() == {"work": "reading", "seconds": 10.0, "done": 100, "total": 300, "unit": "game"}


def test_the_rest_is_not_estimated_from_the_first_few():
    work = at(10.0, total=6400, unit="position")
    work.advance(4)
    assert work.line() == "reading: 4 of 6,400 positions in 10 s | 2.5 s per position"


def test_what_was_done_before_is_no_speed_of_now():
    work = at(10.0, total=300, unit="step", done=290)
    work.advance(292)
    assert work.line() == "reading: 292 of 300 steps in 10 s | 5.0 s per step | about 40 s left"


def test_a_better_estimate_and_a_note_are_told():
    work = at(10.0, total=300, unit="step")
    work.advance(10, "loss 2.5")
    work.left_s = 3725.0
    assert work.line() == "reading: 10 of 300 steps in 10 s | loss 2.5 | about 1 h 2 min left"


def test_nothing_is_promised_before_the_first_unit():
    assert at(9.0, total=300, unit="step").line() == "reading: 0 of 300 steps in 9 s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (130, "2 min 10 s"),
        (3599.6, "1 h"),
        (3725, "1 h 2 min"),
        (7980, "2 h 13 min"),
        (86399, "1 day"),
        (1e5, "1 day 4 h"),
        (2.6e5, "3 days"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
