"""The SPRT: fastchess's figures for the same games, and how often it is wrong in simulated matches."""

import numpy as np
import pytest

from alphazero.base.errors import ConfigError
from alphazero.measure.elo import Sprt, expected_score

# Counts from losses to wins, the two strengths, the model, and what fastchess's own tests expect.
FASTCHESS = [
    ((36027, 68692, 36433), (0, 2), "normalized", 0.92),
    ((10650, 20431, 10871), (-1.75, 0.25), "normalized", 2.30),
    ((0, 0, 4250), (0, 10), "normalized", 120.56),
    ((21184, 40708, 21404), (0.5, 2.5), "logistic", -1.57),
    ((57030, 106593, 57433), (0, 2), "logistic", -2.59),
    ((365, 16618, 36229, 16974, 390), (0, 2), "normalized", 2.25),
    ((127, 4883, 10712, 5150, 104), (-1.75, 0.25), "normalized", 3.01),
    ((0, 0, 0, 0, 5550), (0, 5), "normalized", 111.82),
    ((223, 9863, 21279, 10037, 246), (0.5, 2.5), "logistic", -3.07),
    ((871, 26175, 55983, 26678, 821), (0, 2), "logistic", -4.98),
]


@pytest.mark.parametrize(("counts", "elos", "model", "expected"), FASTCHESS)
def test_ratios_are_those_of_fastchess(counts, elos, model, expected) -> None:
    assert Sprt(*elos, model=model).log_likelihood_ratio(counts) == pytest.approx(expected, rel=0.01)


def test_bounds_are_wald_s() -> None:
    assert Sprt(0, 5).bounds == pytest.approx((-2.944, 2.944), abs=0.001)
    assert Sprt(0, 5, alpha=0.1, beta=0.05).bounds == pytest.approx((-2.890, 2.251), abs=0.001)


def test_nothing_is_decided_before_the_first_game() -> None:
    assert Sprt(0, 5).log_likelihood_ratio((0, 0, 0, 0, 0)) == 0.0
    assert Sprt(0, 5).decide((0, 0, 0, 0, 0)) == "continue"


EXAMPLE = Sprt(-40, 0, model="logistic")


def decided(elo: float, generator: np.random.Generator, test: Sprt = EXAMPLE) -> str:
    """A match of a player of this logistic strength, a third of the games drawn, to its decision."""
    win, games = expected_score(elo) - 1 / 6, np.zeros(5, int)
    for _ in range(3000):
        points = generator.choice(3, size=(4, 2), p=(1 - win - 1 / 3, 1 / 3, win)).sum(axis=1)
        games += np.bincount(points, minlength=5)
        if (decision := test.decide([int(count) for count in games])) != "continue":
            return decision
    return "continue"


def test_matches_of_either_strength_are_decided_rightly_nineteen_times_in_twenty() -> None:
    generator = np.random.default_rng(3)
    for elo, right in ((-40, "H0"), (0, "H1")):
        decisions = [decided(elo, generator) for _ in range(60)]
        assert decisions.count(right) >= 54
    assert decided(200, generator) == "H1"


@pytest.mark.parametrize("model", ["normalized", "logistic"])
def test_a_match_of_equals_stops_at_h0_and_one_of_200_elo_at_h1(model) -> None:
    generator, test = np.random.default_rng(4), Sprt(0, 40, model=model)
    assert [decided(0, generator, test) for _ in range(20)].count("H0") >= 18
    assert [decided(200, generator, test) for _ in range(20)] == ["H1"] * 20


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((5, 0), "--sprt 5 0: expected the first below the second"),
        ((0, float("nan")), "expected the first below"),
        ((0, 5, 0.6, 0.5), "alpha 0.6, beta 0.5: expected both above 0, their sum below 1"),
        ((0, 5, 0.0, 0.5), "expected both above 0"),
    ],
)
def test_what_is_no_test_is_refused(arguments, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Sprt(*arguments)
