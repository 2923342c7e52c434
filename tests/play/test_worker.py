"""Self-play: games are functions of their lane and number, by the rules, and as the settings say."""

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.games.registry import make_line
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import lanes_of, new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator


def games_of(played):
    return {(game.lane, game.number): list(game.moves) for game in played.finished}


def played_with(
    game: str = "connect4", *, moves: int = 40, lanes=range(10), batch: int = 8, threads: int = 1, **own
):
    search = SearchConfig(algorithm=own.pop("algorithm", "puct"), simulations=own.pop("simulations", 10))
    settings = self_play_settings(search, SelfPlayConfig(**own), seed=own.get("seed", 1))
    return play(
        game, settings, [new_lane(i) for i in lanes], moves, MadeUpEvaluator(game, batch), num_threads=threads
    )


def test_lanes_are_dealt_out_and_the_remainder_begins_at_rank_0() -> None:
    assert [list(lanes_of(rank, 3, 8)) for rank in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize("game", ["connect4", "tictactoe", "chess"])
@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_games_are_the_same_on_one_rank_and_on_three(game: str, algorithm: str) -> None:
    own = {"algorithm": algorithm, "opening_plies": 4, "max_plies": 30}
    one = played_with(game, lanes=range(7), batch=8, **own)
    three = [
        played_with(game, lanes=lanes_of(rank, 3, 7), batch=8, threads=1 + rank, **own) for rank in range(3)
    ]
    assert games_of(one) == {key: moves for part in three for key, moves in games_of(part).items()}
    under_way = {game.lane: list(game.moves) for part in three for game in part.under_way}
    assert under_way == {game.lane: list(game.moves) for game in one.under_way}
    assert len(games_of(one)) > 3


def test_one_group_of_trees_plays_the_games_of_two_in_fewer_batches() -> None:
    """What the CPU does, which evaluates at once, and a GPU, where one group is searched meanwhile."""
    settings = self_play_settings(SearchConfig(simulations=10), SelfPlayConfig(opening_plies=4), seed=1)
    lanes = [new_lane(i) for i in range(20)]
    one, two = (
        play("connect4", settings, lanes, 30, MadeUpEvaluator("connect4", 8, ahead)) for ahead in (1, 2)
    )
    assert games_of(one) == games_of(two) and len(games_of(one)) > 10
    assert one.evaluations == two.evaluations and one.batches < two.batches


def test_every_game_follows_the_rules_and_has_its_result() -> None:
    finished = played_with(moves=120, resign_threshold=0.0).finished
    for game in finished:
        line = make_line("connect4")
        for move in game.moves.tolist():
            assert not line.outcome().over
            line.push(move)
        outcome = line.outcome()
        assert outcome.over and game.end is _core.GameEnd.RULES and game.termination == outcome.termination
        assert game.result == (outcome.value if line.first_player_to_move else -outcome.value)
    assert len({tuple(game.moves.tolist()) for game in finished}) == len(finished) > 20


def test_a_stretch_cut_in_two_plays_the_same_games_where_no_tree_is_kept() -> None:
    search = SearchConfig(algorithm="gumbel", simulations=8)
    settings = self_play_settings(search, SelfPlayConfig(opening_plies=2), seed=5)
    evaluator = MadeUpEvaluator("connect4", 16)
    whole = play("connect4", settings, [new_lane(i) for i in range(6)], 60, evaluator)
    first = play("connect4", settings, [new_lane(i) for i in range(6)], 23, evaluator)
    second = play("connect4", settings, first.under_way, 37, evaluator)
    assert games_of(first) | games_of(second) == games_of(whole)


def test_openings_are_random_and_not_trained_on() -> None:
    finished = played_with(moves=120, opening_plies=6).finished
    lengths = {int(np.argmax(game.flags)) for game in finished}
    assert lengths == set(range(7))
    assert all(set(game.flags[np.argmax(game.flags) :].tolist()) == {1} for game in finished)


def test_the_share_of_full_searches_is_the_one_asked_for() -> None:
    finished = played_with(moves=300, full_search_share=0.25, fast_simulations=3, simulations=12).finished
    flags = np.concatenate([game.flags for game in finished])
    visits = np.concatenate([game.visits for game in finished])
    assert 0.2 < flags.mean() < 0.3
    assert visits[flags == 0].max() <= 12 and np.median(visits[flags == 0]) < np.median(visits[flags == 1])


def test_resignation_ends_games_but_those_played_through() -> None:
    finished = played_with(moves=200, resign_threshold=0.1, resign_playthrough=0.3).finished
    resigned = [game for game in finished if game.end is _core.GameEnd.RESIGNATION]
    assert resigned
    for game in resigned:
        assert not game.plays_through and game.resign_ply == len(game.moves)
        assert game.result == (-1 if len(game.moves) % 2 == 0 else 1)
    played_on = [game for game in finished if game.plays_through]
    assert all(game.end is _core.GameEnd.RULES for game in played_on)
    assert any(0 <= game.resign_ply < len(game.moves) for game in played_on)
    assert 0.15 < len(played_on) / len(finished) < 0.45


def test_even_a_side_that_despairs_at_once_makes_a_move() -> None:
    finished = played_with(moves=200, resign_threshold=0.001, resign_playthrough=0.0).finished
    assert min(len(game.moves) for game in finished) == 1
    assert all(game.flags.any() for game in finished)


def test_a_game_of_too_many_plies_is_drawn() -> None:
    finished = played_with("chess", moves=40, max_plies=12, simulations=2).finished
    too_long = [game for game in finished if game.end is _core.GameEnd.TOO_LONG]
    assert too_long and all(len(game.moves) == 12 and game.result == 0 for game in too_long)


def test_other_seeds_play_other_games() -> None:
    search, own = SearchConfig(simulations=10), SelfPlayConfig()
    one, other = (
        play(
            "connect4",
            self_play_settings(search, own, seed),
            [new_lane(0)],
            50,
            MadeUpEvaluator("connect4", 8),
        )
        for seed in (1, 2)
    )
    assert games_of(one) != games_of(other)


def test_play_can_be_broken_off_and_tells_what_has_ended() -> None:
    settings = self_play_settings(SearchConfig(simulations=10), SelfPlayConfig(), seed=1)
    told = []

    def on_progress(moves: int, games: int) -> bool:
        told.append(games)
        return games < 3

    played = play(
        "connect4",
        settings,
        [new_lane(i) for i in range(8)],
        500,
        MadeUpEvaluator("connect4", 4),
        on_progress=on_progress,
    )
    assert not played.is_complete and len(played.finished) == told[-1] >= 3


def test_batches_are_full_but_for_the_end_and_evaluations_are_counted() -> None:
    evaluator = MadeUpEvaluator("connect4", 8)
    settings = self_play_settings(SearchConfig(simulations=16), SelfPlayConfig(), seed=1)
    played = play("connect4", settings, [new_lane(i) for i in range(16)], 30, evaluator)
    assert played.evaluations == evaluator.positions
    assert played.moves == 16 * 30
    assert played.evaluations / played.batches > 0.8 * 8


def test_a_lane_with_an_illegal_move_is_refused() -> None:
    game = new_lane(4)
    game.moves = np.array([3, 9], np.uint16)
    with pytest.raises(_core.GameError, match="lane 4, game 0: move 9 "):
        play("connect4", _core.SelfPlaySettings(), [game], 1, MadeUpEvaluator("connect4", 8))
