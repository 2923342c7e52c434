"""Rounds of self-play: a budget of moves or of simulations for every lane."""

from collections import Counter

import pytest

import alphazero._core as _core
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, lanes_of, new_cache, new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

FULL, QUICK = 24, 6
GAMES = SelfPlayConfig(full_search_share=0.4, fast_simulations=QUICK)


def settings_of(algorithm: str) -> _core.SelfPlaySettings:
    return self_play_settings(SearchConfig(algorithm=algorithm, simulations=FULL), GAMES, seed=3)


def played(
    algorithm: str, lanes: list[_core.SelfPlayGame], budget: int, *, batch: int = 8, cached: bool = False
) -> Played:
    return play(
        "connect4",
        settings_of(algorithm),
        lanes,
        budget,
        MadeUpEvaluator("connect4", batch),
        in_simulations=True,
        cache=new_cache(1) if cached else None,
    )


def new_lanes(count: int) -> list[_core.SelfPlayGame]:
    return [new_lane(number) for number in range(count)]


def moves_by_lane(found: Played) -> Counter[int]:
    moves: Counter[int] = Counter()
    for game in (*found.finished, *found.under_way):
        moves[game.lane] += len(game.moves)
    return moves


def contents(games: list[_core.SelfPlayGame]) -> list[tuple[object, ...]]:
    return [(game.lane, game.number, tuple(game.moves), tuple(game.root_q)) for game in games]


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize("budget", [1, FULL, 100])
def test_a_lane_stops_at_the_end_of_the_move_at_which_its_budget_is_used(algorithm: str, budget: int):
    found = played(algorithm, new_lanes(1), budget)
    assert budget <= found.simulations < budget + FULL


def test_every_search_begins_with_a_new_tree():
    """All visits of a move were paid for, and none is left of the search before."""
    found = play(
        "connect4",
        self_play_settings(SearchConfig(simulations=FULL), SelfPlayConfig(), seed=3),
        new_lanes(2),
        200,
        MadeUpEvaluator("connect4", 8),
        in_simulations=True,
    )
    games = [*found.finished, *found.under_way]
    assert found.simulations == sum(int(game.visits.sum()) for game in games)
    assert max(int(game.visits.max()) for game in games) == FULL


def test_lanes_with_quick_searches_make_more_moves_of_a_budget():
    moves = moves_by_lane(played("gumbel", new_lanes(12), 120))
    assert min(moves.values()) >= 120 // FULL
    assert max(moves.values()) > min(moves.values())


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_the_lanes_of_one_rank_and_of_two_play_the_same_games_of_a_budget(algorithm: str):
    """Over two rounds, whatever the batch and with a cache or without."""

    def two_rounds(lanes: list[_core.SelfPlayGame], batch: int, *, cached: bool) -> list[tuple[object, ...]]:
        finished = []
        for _ in range(2):
            found = played(algorithm, lanes, 150, batch=batch, cached=cached)
            finished += found.finished
            lanes = found.under_way
        return contents([*finished, *lanes])

    one = two_rounds(new_lanes(10), 16, cached=False)
    ranks = [
        two_rounds([new_lane(number) for number in lanes_of(rank, 2, 10)], 4, cached=True) for rank in (0, 1)
    ]
    assert sorted(one) == sorted([*ranks[0], *ranks[1]])
    assert len({game[0] for game in one}) == 10


def test_what_a_lane_used_beyond_its_budget_is_not_taken_from_the_next():
    """A round of one simulation is a whole move, in each of three rounds."""
    lanes = new_lanes(6)
    for number in range(1, 4):
        lanes = played("gumbel", lanes, 1).under_way
        assert [len(lane.moves) for lane in lanes] == [number] * 6


def test_lanes_end_at_about_the_same_time_so_that_batches_stay_full():
    """Searches of a lane need more evaluations or fewer; a lane that is behind is given the next place."""
    found = played("puct", new_lanes(32), 20 * FULL, batch=8, cached=True)
    assert found.cached > 8000 and found.evaluations > 0.95 * 8 * found.batches
