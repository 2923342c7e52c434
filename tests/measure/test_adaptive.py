"""Ratings on a ladder: simulated players are found where they are, with few games and intervals that hold."""

import numpy as np
import pytest

from alphazero.measure.elo import MatchScore
from alphazero.measure.rating import PAIRS_AT_ONCE, Rung, estimate, rate
from alphazero.play.matches.players import Player
from tests.measure.test_bradley_terry import played

LADDER = [
    Rung(Player(name), rating) for name, rating in zip("abcd", (0.0, 500.0, 1000.0, 1500.0), strict=True)
]


def rated(true: float, seed: int, *, most_games: int = 400, width: float = 100, start=None):
    generator = np.random.default_rng(seed)
    met = []

    def play(opponent: int, first_pair: int, pairs: int) -> MatchScore:
        met.append((opponent, first_pair, pairs))
        return played(true - LADDER[opponent].rating, pairs, generator, draws=0.2)

    return rate(LADDER, play, most_games=most_games, width=width, start=start), met


@pytest.mark.parametrize("true", [100.0, 740.0, 1300.0])
def test_a_player_is_found_where_it_is(true) -> None:
    found, met = rated(true, 3)
    assert found.low <= true <= found.high and found.high - found.low <= 100
    assert found.games == 2 * sum(pairs for _, _, pairs in met) <= 400
    # Most games were against the rung that is nearest, the first ones in the middle.
    nearest = min(range(4), key=lambda index: abs(LADDER[index].rating - found.elo))
    assert met[0] == (2, 0, PAIRS_AT_ONCE) and met[-1][0] == nearest
    assert [first for _, first, _ in met] == [PAIRS_AT_ONCE * number for number in range(len(met))]


def test_intervals_hold_the_truth_nineteen_times_in_twenty() -> None:
    inside = 0
    for seed in range(60):
        found, _ = rated(620.0, seed, most_games=64, width=1)
        inside += found.low <= 620 <= found.high
    assert inside >= 55


def test_it_ends_at_the_most_games() -> None:
    found, met = rated(740.0, 1, most_games=20, width=1)
    assert found.games == 20 and [pairs for _, _, pairs in met] == [8, 2]


def test_a_known_start_is_where_the_first_games_are() -> None:
    _, met = rated(1400.0, 1, start=1450.0)
    assert met[0][0] == 3


def test_who_loses_or_wins_every_game_is_said_to_be_beyond_the_ladder() -> None:
    lost = rate(LADDER, lambda opponent, first, pairs: MatchScore(0, 0, 2 * pairs), most_games=80, width=1)
    assert lost.beyond == "below" and lost.high < 0 and lost.low >= -800
    won = rate(LADDER, lambda opponent, first, pairs: MatchScore(2 * pairs, 0, 0), most_games=80, width=1)
    assert won.beyond == "above" and won.low > 1500
    drawn = estimate([(LADDER[0], MatchScore(0, 2, 0, (0, 0, 1, 0, 0)))], LADDER)
    assert drawn.beyond == ""


def test_an_estimate_by_hand() -> None:
    """3/4 of very many points against a player of 500: 500 + 190.85."""
    found = estimate([(LADDER[1], MatchScore(75_000, 0, 25_000))], LADDER)
    assert found.elo == pytest.approx(690.85, abs=1.5)
    # The standard error is 1 / (slope * sqrt(n p q)), slope ln(10)/400: 0.4 Elo; the grid's step is 1.
    assert found.high - found.low <= 5
