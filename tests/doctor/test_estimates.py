"""Hours and energy by what was measured, and how they are told."""

import re

import pytest

from alphazero.doctor.estimates import energy_kwh, estimates, training_hours
from alphazero.doctor.figures import PresetFigures
from alphazero.doctor.page import duration, rate
from tests.support.paths import REPOSITORY

CHESS = PresetFigures(
    "chess_cpu", "chess", "6x64", trains=1000.0, batch_size=256, watts={"gpu0": 300, "cpu": 60}
)
FOUR = PresetFigures("connect4", "connect4", "5x64", trains=2048.0, plays=100.0, batch_size=512)


def test_a_million_positions_at_a_thousand_a_second():
    hours = training_hours(CHESS, 1_000_000)
    assert hours == pytest.approx(1000 / 3600)
    assert energy_kwh(CHESS, hours) == pytest.approx(0.1)
    assert energy_kwh(FOUR, hours) is None
    assert training_hours(PresetFigures("chess_cpu"), 1) is None


def test_the_demo_plays_what_it_trains_on_as_often_as_its_preset_reuses_it():
    (demo,) = estimates([FOUR])
    (generations,) = re.findall(r"--generations (\d+) --run-name demo", (REPOSITORY / "Makefile").read_text())
    trained = int(generations) * 100 * 512
    assert demo.hours == pytest.approx((trained / 2048 + trained / 4 / 100) / 3600)
    assert f"make demo: {generations} generations" in demo.job


def test_a_hundred_million_positions_of_chess_are_told_for_every_preset_of_chess():
    chess, demo = estimates([CHESS, PresetFigures("connect4", "connect4", trains=1.0)])
    assert chess.job == "100 million positions of chess"
    assert chess.hours == pytest.approx(1e5 / 3600)
    assert chess.kwh == pytest.approx(10.0)
    assert demo.hours is None


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (0.01, "36 seconds"),
        (1 / 60, "1.0 minutes"),
        (0.5, "30 minutes"),
        (1.9, "114 minutes"),
        (3.25, "3.2 hours"),
        (47.0, "47 hours"),
        (100.0, "4.2 days"),
        (24 * 3650.0, "10 years"),
        (None, "not measured"),
    ],
)
def test_durations_are_told_in_the_unit_that_people_would_use(hours, said):
    assert duration(hours) == said


def test_rates_keep_three_digits():
    assert [rate(value) for value in (1.4371, 18.06, 723.2, 12345.6)] == ["1.44", "18.1", "723", "12,346"]
