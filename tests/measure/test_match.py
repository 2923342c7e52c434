"""Matches: every opening with either side, results for the right player."""

import random

from alphazero.measure.elo import MatchScore, Sprt
from alphazero.measure.match import Scoreboard, play_match
from alphazero.play.matches.game import FinishedGame, pairings_of
from alphazero.play.matches.match import Arena, MatchPlan
from alphazero.play.matches.openings import Opening, random_openings
from alphazero.play.matches.players import ChooseMoves, Player, decisions_of


def random_player(seed):
    generator = random.Random(seed)
    return lambda lines: [generator.choice(line.legal()) for line in lines]


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
    lines = [opening.line("connect4") for opening in openings]
    assert len({line.key for line in lines}) == 40
    assert all(line.num_plies == 4 and not line.outcome().over for line in lines)
    assert openings == random_openings("connect4", 40, 4, seed=1)
    assert openings != random_openings("connect4", 40, 4, seed=2)


def test_more_openings_than_there_are_repeat_some() -> None:
    assert len(random_openings("tictactoe", 20, 1, seed=1)) == 20


def test_a_player_against_itself_scores_one_half() -> None:
    score = play_match("connect4", first_legal, first_legal, random_openings("connect4", 25, 3, seed=1))
    assert score.games == 50 and score.wins == score.losses
    # What one game of a pair gives the other one takes.
    assert score.pairs == (0, 0, 25, 0, 0)


def test_the_points_go_to_the_player_who_won_them() -> None:
    openings = random_openings("connect4", 30, 2, seed=1)
    score = play_match("connect4", winner, random_player(1), openings)
    turned = play_match("connect4", random_player(1), winner, openings)
    assert score.wins > 45 and turned.losses > 45
    assert sum(score.pairs) == 30
    assert sum(place * count for place, count in enumerate(score.pairs)) == 2 * score.wins + score.draws


def test_a_long_game_is_drawn() -> None:
    score = play_match("chess", first_legal, first_legal, random_openings("chess", 2, 2, seed=1), max_plies=6)
    assert score == MatchScore(0, 4, 0, (0, 0, 2, 0, 0))


def played_until_decided(
    first: ChooseMoves, second: ChooseMoves, openings: list[Opening], test: Sprt
) -> MatchScore:
    """A match of 64 games at a time until the test is decided."""
    board = Scoreboard()

    def on_game(over: FinishedGame) -> bool:
        board.add(over)
        return test.decide(board.in_order(0, 1).pairs) == "continue"

    players = (Player("first", decide=decisions_of(first)), Player("second", decide=decisions_of(second)))
    with Arena() as arena:
        plan = MatchPlan("connect4", players, tuple(pairings_of(2, openings)), lanes=64)
        arena.play(plan, on_game, print)
    return board.in_order(0, 1)


def test_a_match_ends_when_its_test_is_decided() -> None:
    openings = random_openings("connect4", 320, 2, seed=1)
    score = played_until_decided(winner, first_legal, openings, Sprt(0, 50))
    assert score.games < 200 and Sprt(0, 50).decide(score.pairs) == "H1"
    # What counts are the first pairs, in the order of the openings, however their games ended in time.
    assert score == play_match("connect4", winner, first_legal, openings[: score.games // 2])
    # A match of equals is decided later than one that is won, if at all.
    equal = played_until_decided(first_legal, first_legal, openings[:64], Sprt(0, 5))
    assert equal.games == 128 and Sprt(0, 5).decide(equal.pairs) != "H1"
