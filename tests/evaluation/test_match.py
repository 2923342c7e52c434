"""Matches: every opening with either side, results for the right player, Elo as the formula has it."""

import math

import pytest

from alphazero.evaluation.match import MatchScore, elo_of, play_match, random_openings
from alphazero.evaluation.players import random_player


def first_legal(lines):
    return [min(line.legal()) for line in lines]


def winner(lines):
    """Wins at once where it can in Connect Four, else plays the leftmost column."""
    moves = []
    for line in lines:
        best = min(line.legal())
        for move in line.legal():
            after = line.copy()
            after.push(move)
            if after.outcome().over and after.outcome().value < 0:
                best = move
        moves.append(best)
    return moves


def test_openings_are_different_not_over_and_the_same_for_a_seed() -> None:
    openings = random_openings("connect4", 40, 4, seed=1)
    assert len({line.key for line in openings}) == 40
    assert all(line.num_plies == 4 and not line.outcome().over for line in openings)
    assert [str(line) for line in openings] == [
        str(line) for line in random_openings("connect4", 40, 4, seed=1)
    ]
    assert [str(line) for line in openings] != [
        str(line) for line in random_openings("connect4", 40, 4, seed=2)
    ]


def test_more_openings_than_there_are_repeat_some() -> None:
    assert len(random_openings("tictactoe", 20, 1, seed=1)) == 20


def test_a_player_against_itself_scores_one_half() -> None:
    score = play_match(first_legal, first_legal, random_openings("connect4", 25, 3, seed=1))
    assert score.games == 50 and score.wins == score.losses


def test_the_points_go_to_the_player_who_won_them() -> None:
    openings = random_openings("connect4", 30, 2, seed=1)
    score = play_match(winner, random_player(1), openings)
    turned = play_match(random_player(1), winner, openings)
    assert score.wins > 45 and turned.losses > 45


def test_a_long_game_is_drawn() -> None:
    score = play_match(first_legal, first_legal, random_openings("chess", 2, 2, seed=1), max_plies=6)
    assert score == MatchScore(0, 4, 0)


def test_elo_is_the_logistic_formulas() -> None:
    assert elo_of(0.5) == 0
    assert elo_of(10 / 11) == pytest.approx(400)
    assert elo_of(0.75) == pytest.approx(190.85, abs=0.01)
    assert elo_of(0) == -math.inf and elo_of(1) == math.inf


def test_the_interval_holds_the_elo_and_narrows_with_the_square_root_of_the_games() -> None:
    few, many = MatchScore(30, 20, 10), MatchScore(3000, 2000, 1000)
    for score in (few, many):
        elo, low, high = score.elo()
        assert low < elo < high
    widths = [score.elo()[2] - score.elo()[1] for score in (few, many)]
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.05)
    # By hand: mean 2/3, variance (30/9 + 20/36 + 10*4/9) / 60 = 0.13889, half width 0.0943 points.
    assert few.elo()[1] == pytest.approx(elo_of(2 / 3 - 0.09430), abs=0.1)
