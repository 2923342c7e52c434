"""Ratings of a tournament: by hand for two, the true ones for many simulated games, finite for few."""

import itertools
import math

import numpy as np
import pytest

from alphazero.measure.elo import MatchScore, expected_score
from alphazero.measure.rating import ratings


def played(elo: float, pairs: int, generator: np.random.Generator, draws: float = 0.3) -> MatchScore:
    """Pairs of games of a player so much stronger."""
    win = max(0.0, min(1 - draws, expected_score(elo) - draws / 2))
    points = generator.choice(3, size=(pairs, 2), p=(1 - win - draws, draws, win))
    games, sums = np.bincount(points.ravel(), minlength=3), np.bincount(points.sum(axis=1), minlength=5)
    return MatchScore(int(games[2]), int(games[1]), int(games[0]), tuple(int(count) for count in sums))


def test_of_two_players_the_difference_is_the_elo_of_their_match() -> None:
    score = MatchScore(114, 60, 26, (2, 8, 20, 40, 30))
    first, second = ratings(2, {(0, 1): score})
    assert first.elo == pytest.approx(-second.elo)
    assert first.elo - second.elo == pytest.approx(score.elo().elo, abs=2)
    assert first.high - first.low == pytest.approx((score.elo().high - score.elo().low) / 2, rel=0.1)


def test_three_players_by_hand() -> None:
    """Points 3/4, 3/4 and 9/10 of many games: differences of 190.85 and 381.7, which fit each other."""
    three = MatchScore(7500, 0, 2500)
    nine = MatchScore(9000, 0, 1000)
    first, second, third = ratings(3, {(0, 1): three, (1, 2): three, (0, 2): nine})
    assert first.elo == pytest.approx(190.85, abs=3)
    assert second.elo == pytest.approx(0, abs=3)
    assert third.elo == pytest.approx(-190.85, abs=3)


def test_true_ratings_lie_in_most_intervals() -> None:
    generator = np.random.default_rng(1)
    true = np.array([150.0, 60.0, 0.0, -40.0, -170.0])
    inside = total = 0
    for _ in range(12):
        scores = {
            (i, j): played(true[i] - true[j], 30, generator) for i, j in itertools.combinations(range(5), 2)
        }
        for found, elo in zip(ratings(5, scores), true, strict=True):
            inside += found.low <= elo <= found.high
            total += 1
            assert abs(found.elo - elo) < 120
    assert inside >= 0.85 * total


def test_a_gauntlet_and_a_player_who_wins_all_have_finite_ratings() -> None:
    won = MatchScore(20, 0, 0, (0, 0, 0, 0, 10))
    even = MatchScore(5, 10, 5, (0, 2, 6, 2, 0))
    found = ratings(3, {(0, 1): won, (0, 2): even})
    assert all(math.isfinite(value) for rating in found for value in (rating.elo, rating.low, rating.high))
    assert found[0].elo > found[1].elo and found[2].elo > found[1].elo
    assert found[1].high - found[1].low > found[2].high - found[2].low


def test_many_meetings_of_few_games_do_not_press_the_field_together() -> None:
    """Ten players 200 Elo apart, four games each: nearly all are won, and the chain still has its length."""
    generator = np.random.default_rng(2)
    scores = {
        (i, j): played(200.0 * (i - j), 2, generator, draws=0.0)
        for i, j in itertools.combinations(range(10), 2)
    }
    found = ratings(10, scores)
    assert 1500 < found[9].elo - found[0].elo < 2300


def test_nobody_has_played() -> None:
    assert [rating.elo for rating in ratings(3, {})] == [0, 0, 0]
    assert all(rating.high > 500 for rating in ratings(3, {}))
