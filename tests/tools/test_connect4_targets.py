"""Targets of self-play beside exact truth: figures worked by hand, and the command."""

from pathlib import Path

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.data.store.games import games_of
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.measure.truth.connect4 import read_sets, solve_in_threads
from alphazero.play import lanes as games
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.data.stores import game as chess_game
from tests.support.data.stores import grown, row, searched
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator
from tools.connect4_targets import (
    BANDS,
    SearchedPosition,
    SolvedTarget,
    draw_positions,
    figures_of,
    main,
    searched_policy,
    share_on_errors,
    solved_target,
)


def position(
    result: int, search: float, network: float, policy: dict[int, float], played: int, *, spoilt: bool = False
):
    """The best move is worth a quarter more than the search's root."""
    shares = np.zeros(7)
    shares[list(policy)] = list(policy.values())
    return SearchedPosition((), result, search, search + 0.25, network, shares, played, spoilt)


def target(position: SearchedPosition, outcome: int, keeps: set[int], *, can_err: bool = True):
    return SolvedTarget(position, outcome, np.isin(np.arange(7), list(keeps)), can_err)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GameStore:
    """Games that searches with made-up evaluations played; a quarter of the moves is trained on."""
    own = SelfPlayConfig(opening_plies=9, full_search_share=0.25, fast_simulations=4)
    settings = self_play_settings(SearchConfig(simulations=16, dirichlet_alpha=1.0), own, seed=3)
    played = play("connect4", settings, [new_lane(i) for i in range(24)], 80, MadeUpEvaluator("connect4", 8))
    path = tmp_path_factory.mktemp("store") / "games"
    rows = games.store_rows(games.to_batch(played.finished), "connect4", "puct", "made up")
    GrowingStore(path, "connect4").append(rows)
    return GameStore.open(path)


def test_figures_worked_by_hand():
    """A won position, a lost one where nothing errs, and two drawn ones."""
    figures = figures_of(
        [
            target(position(1, 0.5, 0.0, {2: 0.5, 3: 0.25, 4: 0.25}, 3), 1, {2}),
            target(position(-1, 0.0, float("nan"), {0: 0.2, 6: 0.8}, 0, spoilt=True), 0, {0, 1}),
            target(position(-1, -1.0, 0.0, {5: 1.0}, 5), -1, {5}, can_err=False),
            target(position(0, 0.0, 0.0, {1: 1.0}, 1), 0, {1}),
        ]
    )
    assert (figures["positions"], figures["with errors"]) == ("4", "3")
    assert (figures["drawn"], figures["wrong results"]) == ("50.0%", "25.0%")
    assert figures["mse of result"] == f"{1 / 4:.3f}"
    assert figures["mse of search"] == f"{0.25 / 4:.3f}"
    assert figures["mse of best move"] == f"{4 * 0.0625 / 4:.3f}"
    # (1 + 0.5) / 2 for a win, (-1 + 0) / 2 for a draw
    assert figures["mse of half and half"] == f"{(0.0625 + 0.25) / 4:.3f}"
    assert figures["mse of network"] == "-"
    # The drawn position that was lost by a random move.
    assert (figures["spoilt"], figures["mse of result, spoilt"]) == ("25.0%", "1.000")
    assert (figures["mse of result, not spoilt"], figures["mse of search, spoilt"]) == ("0.000", "0.000")
    assert figures["policy on errors"] == f"{(0.5 + 0.8 + 0.0) / 3:.1%}"
    assert figures["likeliest move errs"] == figures["played move errs"] == f"{1 / 3:.1%}"
    # at 0.5 the shares are squared: 1/8 of 3/8 and 0.64 of 0.68
    assert figures["policy on errors at 0.5"] == f"{(1 / 3 + 0.64 / 0.68) / 3:.1%}"


def test_where_no_move_can_err_there_is_no_share():
    figures = figures_of([target(position(1, 1.0, 1.0, {0: 1.0}, 0), 1, {0}, can_err=False)])
    assert figures["with errors"] == "0" and figures["played move errs"] == "-"
    assert figures["mse of search"] == "0.000"


def test_a_low_temperature_is_no_division_by_zero():
    shares = {0: 1 - 1e-5, 1: 1e-5}
    assert share_on_errors(target(position(1, 0.0, 0.0, shares, 0), 1, {0}), 0.01) == 0.0


def test_the_truth_is_that_of_the_own_table():
    """The table was made by another program of the solver's: scores of every move."""
    solver = _core.Connect4Solver(16)
    for entry in read_sets()[:3]:
        for known in entry.positions[:20]:
            found = solved_target(
                solver,
                SearchedPosition(
                    tuple(int(move) - 1 for move in known.moves), 0, 0.0, 0.0, 0.0, np.ones(7) / 7, 0, False
                ),
            )
            assert found.outcome == known.outcome
            assert found.keeps.tolist() == [column in known.keeping for column in range(7)]
            assert found.can_err == known.may_err


def test_positions_are_those_of_the_games(store: GameStore):
    """At most one a game, of the plies trained on, with what the store says of that ply."""
    by_moves = {tuple(game.lists["moves"].tolist()): game for game in games_of(store)}
    drawn = draw_positions(store, store.num_games, 10, seed=1)
    assert [len(of_band) for of_band in drawn[:4]] == [10, 10, 10, 10]
    used = []
    for band, of_band in zip(BANDS, drawn, strict=True):
        for found in of_band:
            ply = len(found.moves)
            assert ply in band
            matching = [
                game
                for moves, game in by_moves.items()
                if moves[: ply + 1] == (*found.moves, found.played)
                and game.lists["root_q"][ply] == found.search_value
            ]
            (game,) = matching
            used.append(id(game))
            assert game.lists["flags"][ply] & 1
            assert found.best_value == game.lists["best_q"][ply]
            later = [searched_policy(game, place) for place in range(ply, len(game.lists["moves"]))]
            # Where nothing was searched, no move is left.
            played = zip(later, game.lists["moves"][ply:], strict=True)
            assert found.is_spoilt == any(policy.max() > policy[move] for policy, move in played)
            assert found.network_value == game.lists["orig_q"][ply]
            assert found.result == game.values["result"] * (-1) ** ply
            begin, end = game.lists["policy_offsets"][ply : ply + 2]
            shares = dict(
                zip(game.lists["policy_move"][begin:end], game.lists["policy_prob"][begin:end], strict=True)
            )
            for column in range(7):
                assert found.policy[column] == pytest.approx(
                    shares.get(column, 0) / sum(map(int, shares.values()))
                )
    assert len(used) == len(set(used))


def test_only_the_newest_games_are_drawn_from(store: GameStore):
    newest = [tuple(game.lists["moves"].tolist()) for game in games_of(store, store.num_games - 5)]
    drawn = [found for of_band in draw_positions(store, 5, 10, seed=1) for found in of_band]
    assert 0 < len(drawn) <= 5
    for found in drawn:
        assert any(moves[: len(found.moves)] == found.moves for moves in newest)


def test_threads_change_nothing(store: GameStore):
    positions = draw_positions(store, store.num_games, 4, seed=2)[3]
    one, two = (list(solve_in_threads(solved_target, positions, 32, threads)) for threads in (1, 2))
    assert [found.outcome for found in one] == [found.outcome for found in two]
    assert all((a.keeps == b.keeps).all() and a.position is b.position for a, b in zip(one, two, strict=True))


def test_the_command_prints_a_column_for_each_band_of_plies(store: GameStore, capsys):
    argv = ["--count", "3", "--seed", "4", "--table-mib", "32", "--num-threads", "2"]
    assert main([str(store.path), *argv]) == 0
    text = capsys.readouterr().out
    assert text.count("8-11") == text.count("20-23") == 1 and "policy on errors at 0.5" in text
    assert main(["nowhere"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "no game store" in captured.err


def test_games_without_searches_and_of_other_games_are_refused(tmp_path: Path):
    chess = grown(tmp_path / "chess", [chess_game("e4 e5", 1)])
    with pytest.raises(DataError, match="holds chess"):
        draw_positions(chess, 5, 5, 0)
    moves = [0, 1, 0, 1, 0, 1, 0]
    short = searched(
        row("connect4", moves, 1), [1] * 7, [[(move, 65535)] for move in moves], [0] * 7, [0] * 7
    )
    moves = [*moves[:6], 2, 3, 2, 3, 2]
    empty = searched(row("connect4", moves, -1), [1] * 11, [[(3, 0)] for _ in moves], [0] * 11, [0] * 11)
    for number, game in enumerate((row("connect4", moves, 1), short, empty)):
        with pytest.raises(DataError, match="8 to 27 stones"):
            draw_positions(grown(tmp_path / str(number), [game]), 5, 5, 0)
