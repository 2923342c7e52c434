"""Othello through the whole program: self-play, its store, a match, an analysis."""

import json

import numpy as np
import pytest
import torch

from alphazero.cli.main import main
from alphazero.data.sampling.loader import WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.games.registry import get_spec, make_line
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import WeightsFile, write_weights
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import lanes_of, new_lane, play
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.games.othello_reference import PASS
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

QUICK = ("--lanes", "8", "--simulations", "4", "--evaluation-batch", "8")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = NetworkConfig(game="othello", blocks=1, filters=8)
    network = AlphaZeroNet(config, get_spec("othello"), torch.Generator().manual_seed(0))
    path = tmp_path_factory.mktemp("weights") / "othello.pt"
    write_weights(path, WeightsFile(config, network.state_dict(), {}))
    return str(path)


@pytest.mark.parametrize("algorithm", ["puct", pytest.param("gumbel", marks=pytest.mark.slow)])
def test_games_are_the_same_on_one_rank_and_on_three_and_follow_the_rules(algorithm: str) -> None:
    search = SearchConfig(algorithm=algorithm, simulations=8)
    settings = self_play_settings(search, SelfPlayConfig(opening_plies=4), seed=1)

    def played(lanes: range, threads: int) -> list:
        evaluator = MadeUpEvaluator("othello", 8)
        lane_games = [new_lane(lane) for lane in lanes]
        return play("othello", settings, lane_games, 130, evaluator, num_threads=threads).finished

    one = played(range(6), 1)
    three = [game for rank in range(3) for game in played(lanes_of(rank, 3, 6), 1 + rank)]
    moves = {(game.lane, game.number): game.moves.tolist() for game in one}
    assert moves == {(game.lane, game.number): game.moves.tolist() for game in three}
    assert len(moves) >= 6 and any(PASS in game for game in moves.values())
    for game in one:
        line = make_line("othello")
        for move in game.moves.tolist():
            assert not line.outcome().over
            line.push(move)
        outcome = line.outcome()
        assert outcome.over and game.termination == outcome.termination
        assert game.result == (outcome.value if line.first_player_to_move else -outcome.value)


def test_its_store_verifies_and_is_read_for_training(weights: str, tmp_path, capsys) -> None:
    store_path = tmp_path / "games"
    assert main(["selfplay", "--weights", weights, "--out", str(store_path), "--games", "12", *QUICK]) == 0
    assert main(["data", "verify", str(store_path)]) == 0
    assert main(["data", "info", str(store_path)]) == 0
    assert "othello" in capsys.readouterr().out
    window = Window.of_stores([GameStore.open(store_path)])
    batch = WindowEncoder(window, get_spec("othello"), num_threads=2).encode(np.arange(window.num_samples))
    sums = np.add.reduceat(batch.policy.astype(np.float64), batch.legal_offset[:-1])
    assert np.allclose(sums, 1) and batch.legal_index.max() == PASS
    assert main(["eval", "--weights", weights, "--data", str(store_path)]) == 0


def test_a_match_and_an_analysis_speak_othello(weights: str, capsys) -> None:
    argv = ["match", "--weights", weights, "--against", "random", "--games", "6", "--simulations", "4"]
    assert main([*argv, "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert score["wins"] + score["draws"] + score["losses"] == 6
    assert main(["analyse", "--weights", weights, "--moves", "d3", "--json"]) == 0
    analysis = json.loads(capsys.readouterr().out)
    assert analysis["position"] == "8/8/8/3xo3/3xx3/3x4/8/8 o"
    assert set(analysis["policy"]) == {"c3", "e3", "c5"}
