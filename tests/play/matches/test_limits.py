"""Time controls as they are written, and clocks that run."""

from argparse import ArgumentTypeError

import pytest

from alphazero.play.matches.limits import Clock, Limit, TimeControl


@pytest.mark.parametrize(
    ("text", "control", "written"),
    [
        ("1+0.05", TimeControl(1, 0.05), "1+0.05"),
        ("40/60", TimeControl(60, 0, 40), "40/60"),
        ("40/1:30+.5", TimeControl(90, 0.5, 40), "40/90+0.5"),
        ("3:00+2", TimeControl(180, 2), "180+2"),
        ("0.1", TimeControl(0.1), "0.1"),
    ],
)
def test_a_time_control_is_read_and_written(text, control, written) -> None:
    assert TimeControl.parse(text) == control
    assert str(control) == written
    assert TimeControl.parse(written) == control


@pytest.mark.parametrize("text", ["", "fast", "0", "1+", "-1", "1e9", "40/", "9999999", "1+0.05+1", "0+0"])
def test_what_is_no_time_control_is_named(text) -> None:
    with pytest.raises(ArgumentTypeError, match="expected"):
        TimeControl.parse(text)


def test_inf_is_no_clock() -> None:
    assert TimeControl.parse("inf") is None


def test_a_clock_runs_down_and_gets_its_increment() -> None:
    clock = Clock(Limit(control=TimeControl(1, 0.1)))
    assert clock.left_s == pytest.approx(1.1)
    assert clock.spend(0.6) == 0
    assert clock.left_s == pytest.approx(0.6)
    assert clock.spend(0.65) == 0, "within the margin"
    assert clock.left_s == pytest.approx(0.1)
    assert clock.spend(0.3) == pytest.approx(0.2)


def test_forty_moves_in_sixty_seconds_are_sixty_more_after_the_fortieth() -> None:
    clock = Clock(Limit(control=TimeControl(60, moves=2)))
    assert clock.moves_to_go == 2
    clock.spend(10)
    assert (clock.left_s, clock.moves_to_go) == (50, 1)
    clock.spend(10)
    assert (clock.left_s, clock.moves_to_go) == (100, 2)


def test_a_fixed_time_is_that_of_each_move() -> None:
    clock = Clock(Limit(move_time_s=0.5, margin_s=0.05))
    assert clock.deadline_s == pytest.approx(0.55)
    assert [clock.spend(elapsed) > 0 for elapsed in (0.5, 0.54, 0.6, 0.5)] == [False, False, True, False]


def test_limits_are_told() -> None:
    assert str(Limit(nodes=100)) == "100 nodes"
    assert str(Limit(control=TimeControl(1, 0.05), depth=8)) == "1+0.05, 8 plies"
    assert str(Limit(move_time_s=0.5)) == "0.5/move"
    assert str(Limit()) == "-" and not Limit().is_any
