"""Elo and its interval: fastchess's figures where it has some, the formula by hand, and few games."""

import math

import numpy as np
import pytest

from alphazero.measure.elo import EloEstimate, MatchScore, elo_of


def test_elo_is_the_logistic_formulas() -> None:
    assert str(elo_of(0.5)) == "0.0"
    assert elo_of(10 / 11) == pytest.approx(400)
    assert elo_of(0.75) == pytest.approx(190.85, abs=0.01)


@pytest.mark.parametrize(
    ("score", "elo", "error", "superiority"),
    [
        # What fastchess's own tests expect: EloWDL 2, EloPentanomial 1.
        (MatchScore(136, 111, 96), 40.70, 30.43, 0.9960),
        (MatchScore(0, 0, 0, (34, 54, 63, 64, 75)), 55.58, 27.65, 1.0),
    ],
)
def test_figures_are_those_of_fastchess(
    score: MatchScore, elo: float, error: float, superiority: float
) -> None:
    estimate = score.elo()
    assert estimate.elo == pytest.approx(elo, abs=0.01)
    assert (estimate.high - estimate.low) / 2 == pytest.approx(error, abs=0.01)
    assert estimate.superiority == pytest.approx(superiority, abs=0.0001)


@pytest.mark.parametrize(
    ("score", "elo", "error", "normalized", "normalized_error", "superiority"),
    [
        # fastchess's own tests EloWDL 1 to 3 and EloPentanomial 1 to 3; None where they say nothing.
        (MatchScore(76, 123, 89), None, None, -20.76, 40.13, 0.1553),
        (MatchScore(136, 111, 96), 40.70, 30.43, 49.77, 36.77, 0.9960),
        (MatchScore(34, 0, 356), None, None, -508.44, 34.48, None),
        (MatchScore(0, 0, 0, (34, 54, 63, 64, 75)), 55.58, 27.65, 57.94, 28.28, 1.0),
        (MatchScore(0, 0, 0, (332, 433, 498, 333, 334)), -8.64, 10.33, -9.17, 10.96, 0.0505),
        (MatchScore(0, 0, 0, (7895, 8757, 5685, 568, 9999)), -21.04, 2.95, -19.01, 2.65, 0.0),
    ],
)
def test_every_figure_of_fastchess_s_own_tests_is_met(
    score: MatchScore, elo, error, normalized, normalized_error, superiority
) -> None:
    estimate, found = score.elo(), score.normalized_elo()
    if elo is not None:
        assert estimate.elo == pytest.approx(elo, abs=0.01)
        assert (estimate.high - estimate.low) / 2 == pytest.approx(error, abs=0.01)
    assert found == pytest.approx((normalized, normalized_error), abs=0.01)
    if superiority is not None:
        assert estimate.superiority == pytest.approx(superiority, abs=0.0001)


def test_the_score_of_the_other_player_is_the_reverse() -> None:
    score = MatchScore(5, 2, 1, (0, 1, 0, 1, 2))
    reverse = MatchScore(1, 2, 5, (2, 1, 0, 1, 0))
    assert reverse.elo().elo == pytest.approx(-score.elo().elo, abs=3)
    assert MatchScore(4, 0, 0, (0, 0, 0, 0, 2)).normalized_elo() is None


def test_the_interval_narrows_with_the_square_root_of_the_games() -> None:
    few, many = MatchScore(30, 20, 10).elo(), MatchScore(3000, 2000, 1000).elo()
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(10, rel=0.05)
    # By hand: mean 2/3, variance (30/9 + 20/36 + 10*4/9) / 60 = 0.13889, half width 0.0943 points.
    assert few.low == pytest.approx(elo_of(2 / 3 - 0.09430), abs=0.1)


@pytest.mark.parametrize(
    "score",
    [
        MatchScore(4, 0, 0, (0, 0, 0, 0, 2)),
        MatchScore(0, 0, 4, (2, 0, 0, 0, 0)),
        MatchScore(0, 4, 0, (0, 0, 2, 0, 0)),
        MatchScore(2, 0, 2, (0, 0, 2, 0, 0)),
        MatchScore(400, 0, 0, (0, 0, 0, 0, 200)),
        MatchScore(199, 1, 0, (0, 0, 0, 1, 99)),
        MatchScore(0, 0, 0),
    ],
)
def test_no_result_is_infinite_and_the_interval_holds_the_elo(score: MatchScore) -> None:
    estimate = score.elo()
    assert all(map(math.isfinite, (estimate.elo, estimate.low, estimate.high)))
    assert estimate.low < estimate.elo < estimate.high
    assert score.elo() == estimate  # the same games, the same figures


def test_four_wins_are_good_news_and_little_certainty() -> None:
    wins, losses = MatchScore(4, 0, 0, (0, 0, 0, 0, 2)).elo(), MatchScore(0, 0, 4, (2, 0, 0, 0, 0)).elo()
    assert wins.low < 0 < wins.elo
    assert wins.elo == pytest.approx(-losses.elo, abs=3)
    assert 0.8 < wins.superiority < 0.99
    many = MatchScore(400, 0, 0, (0, 0, 0, 0, 200)).elo()
    assert many.low > 300 and many.superiority > 0.9999


@pytest.mark.slow
def test_of_equal_players_nine_of_ten_intervals_and_more_hold_0_with_few_pairs_as_with_many() -> None:
    generator = np.random.default_rng(5)
    for pairs in (2, 8, 40):
        held = 0
        for _ in range(150):
            points = generator.multinomial(pairs, (0.05, 0.2, 0.5, 0.2, 0.05))
            estimate: EloEstimate = MatchScore(0, 0, 0, tuple(int(count) for count in points)).elo()
            held += estimate.low <= 0 <= estimate.high
        assert held >= 150 * 0.9, pairs
