"""`alphazero rate`: ratings on a small ladder, over checkpoints, and what is refused."""

import contextlib
import json
import re
import stat
import sys

import pytest
import torch

from alphazero.cli.main import main
from alphazero.cli.playing.rate import Rater
from alphazero.games.registry import get_spec, read_game
from alphazero.measure import ladder
from alphazero.measure.ladder import published_ladder, read_ladder
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState, save
from alphazero.settings.load import Config, to_table
from alphazero.settings.sections import NetworkConfig
from tests.support.evaluation.small_nets import write_small_net
from tests.support.paths import SUPPORT

RUNGS = [
    {"name": "random", "kind": "random", "rating": 0.0},
    {"name": "half", "kind": "weights", "rating": 150.0, "nodes": 2, "file": "net.pt", "random_share": 0.5},
    {"name": "whole", "kind": "weights", "rating": 300.0, "nodes": 2, "file": "net.pt"},
    {"name": "fish", "kind": "stockfish", "rating": 600.0, "nodes": 1},
]
QUICK = ["--games", "8", "--width", "10", "--simulations", "2", "--seed", "3"]


@pytest.fixture
def small_ladder(tmp_path, monkeypatch):
    """A directory with the ladder's network, and a fake Stockfish on PATH."""
    monkeypatch.setattr(ladder, "read_ladder", lambda: RUNGS)
    monkeypatch.setattr("alphazero.cli.playing.rate.MAX_PLIES", 24)
    write_small_net(tmp_path / "net.pt", "chess")
    fish = tmp_path / "stockfish"
    fish.write_text(f"#!/bin/sh\nexec {sys.executable} {SUPPORT / 'evaluation' / 'fake_engine.py'}\n")
    fish.chmod(fish.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.fixture
def chess_run(tmp_path):
    """A run with checkpoints of four steps."""
    run, shape = tmp_path / "runs" / "x", NetworkConfig(game="chess", blocks=1, filters=8)
    for step in (1, 2, 3, 4):
        network = AlphaZeroNet(shape, get_spec("chess"), torch.Generator().manual_seed(step))
        state = TrainingState(step, 20, 0, 8, 8, "", 1, to_table(Config(network=shape)))
        save(run / "checkpoints", Checkpoint(state, network.state_dict(), {}))
    return run


def test_networks_are_rated_with_intervals(small_ladder, tmp_path, capsys) -> None:
    nets = [write_small_net(tmp_path / f"{seed}.pt", "chess", seed) for seed in (1, 2)]
    assert main(["rate", *nets, "--ladder", str(small_ladder), *QUICK, "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [rating["weights"] for rating in found] == nets
    for rating in found:
        low, high = rating["elo_95"]
        assert low < rating["elo"] < high and rating["games"] == 8
        assert sum(met[key] for met in rating["opponents"] for key in ("wins", "draws", "losses")) == 8
        assert rating["limit"] == "2 nodes"
    assert re.search(r"1\.pt: 8 games, -?\d+ \(-?\d+ to -?\d+\)", captured.err)


def test_levels_are_ratings_at_several_nodes_kept_beside_the_weights(small_ladder, tmp_path, capsys) -> None:
    net = write_small_net(tmp_path / "1.pt", "chess", 1)
    argv = ["rate", net, "--ladder", str(small_ladder), *QUICK, "--json", "--levels"]
    assert main([*argv, "4", "1"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert [rating["limit"] for rating in found] == ["1 nodes", "4 nodes"]
    kept = json.loads((tmp_path / "1.pt.levels.json").read_text())
    assert [(level["nodes"], level["elo"], level["games"]) for level in kept["levels"]] == [
        (nodes, rating["elo"], rating["games"]) for nodes, rating in zip((1, 4), found, strict=True)
    ]
    assert re.search(r"wrote \S+1\.pt\.levels\.json: -?\d+ at 1 node, -?\d+ at 4 nodes", captured.err)
    assert main([*argv, "4"]) == 2
    assert "--levels 4: " in capsys.readouterr().err


def test_levels_are_of_weights_files(chess_run, small_ladder, capsys) -> None:
    assert main(["rate", str(chess_run), "--ladder", str(small_ladder), *QUICK, "--levels"]) == 2
    assert "is a checkpoint" in capsys.readouterr().err


def test_people_see_how_many_games_are_over(small_ladder, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("alphazero.show.console.FIRST_SILENCE_S", 0.0)
    monkeypatch.setattr("alphazero.show.console.LONGEST_SILENCE_S", 0.0)
    monkeypatch.setattr("alphazero.show.console.TICK_S", 0.001)
    monkeypatch.setattr(ladder, "read_ladder", lambda: RUNGS[:3])
    net = write_small_net(tmp_path / "1.pt", "chess", 1)
    assert main(["rate", net, "--ladder", str(small_ladder), *QUICK, "--device", "cpu"]) == 0
    done = [int(found) for found in re.findall(r"1\.pt: (\d) of 8 games in ", capsys.readouterr().err)]
    assert len(set(done)) > 1 and done == sorted(done)


def test_a_network_is_not_in_its_own_ladder_whatever_its_file_is_called(
    small_ladder, tmp_path, capsys
) -> None:
    same = write_small_net(tmp_path / "other-name.safetensors", "chess")
    assert main(["rate", same, "--ladder", str(small_ladder), *QUICK]) == 0
    said = capsys.readouterr().out
    assert "other-name" in said and "whole" not in said and "half" not in said
    assert "the ladder's scale" in said


def test_what_the_machine_lacks_is_left_out_and_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ladder, "GAMES", str(tmp_path))
    monkeypatch.setenv("ALPHAZERO_LADDER", str(tmp_path / "nets"))
    monkeypatch.setattr(ladder, "read_ladder", lambda: RUNGS)
    found, lines = published_ladder(None)
    assert [rung.player.name for rung in found.rungs] == ["random"]
    assert len(lines) == 2 and "lacks net.pt" in lines[0] and "lacks Stockfish" in lines[1]
    assert str(tmp_path / "nets") in lines[0]


def test_checkpoints_of_a_run_are_rated_into_its_directory(small_ladder, chess_run, capsys) -> None:
    argv = ["rate", str(chess_run), "--checkpoints", "2", "--ladder", str(small_ladder), *QUICK]
    assert main(argv) == 0
    captured = capsys.readouterr()
    assert [line.split()[1] for line in captured.out.splitlines()[1:3]] == ["1", "3"]
    kept = [json.loads(line) for line in (chess_run / "ratings.jsonl").read_text().splitlines()]
    assert [rating["step"] for rating in kept] == [1, 3] and all(rating["version"] == 1 for rating in kept)
    strongest = max(kept, key=lambda rating: rating["elo"])
    marked = f"{chess_run}@best-elo is step-{strongest['step']:08d} ({strongest['elo']:.0f})"
    assert marked in captured.err.splitlines()
    (weights,) = chess_run.glob("*_best-elo.pt")
    for name in (f"{chess_run}@best-elo", f"{chess_run}@elo", str(weights)):
        assert main(["analyse", "--weights", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["policy"]


FIRST_ONE = f"{SUPPORT / 'games' / 'rules' / 'first_one.py'}:FirstOne"
OF_PLAYOUTS = ["random", "mcts-16", "mcts-64"]


@pytest.fixture
def playouts(tmp_path, monkeypatch):
    """A short ladder of playouts, kept in an own directory; the arguments of a quick rating."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("alphazero.measure.ladder.SIMULATIONS", (16, 64))
    return ["--games", "16", "--width", "10", "--simulations", "16", "--device", "cpu"]


@pytest.fixture
def first_one_run(tmp_path):
    """A run of a game in a Python file with checkpoints of two steps."""
    game = read_game("--game", FIRST_ONE)
    run, shape = tmp_path / "runs" / "ones", NetworkConfig(game=game, blocks=1, filters=8)
    for step in (1, 2):
        network = AlphaZeroNet(shape, get_spec(game), torch.Generator().manual_seed(step))
        state = TrainingState(step, 20, 0, 8, 8, "", 1, to_table(Config(network=shape)))
        save(run / "checkpoints", Checkpoint(state, network.state_dict(), {}))
    return run


def test_in_a_game_of_a_python_file_ratings_are_those_of_the_exact_odds(
    playouts, first_one_run, capsys
) -> None:
    """Who looks ahead is 191 Elo above random moves and no other amount: see the file of the game."""
    argv = ["rate", str(first_one_run), "--game", FIRST_ONE, *playouts]
    assert main([*argv, "--json"]) == 0
    captured = capsys.readouterr()
    (rating,) = json.loads(captured.out)
    assert rating["game"].startswith("first_one.py:FirstOne@") and rating["ladder"]
    assert rating["games"] == 16 and rating["elo_95"][0] <= 191 <= rating["elo_95"][1]
    shown = {name: float(elo) for name, elo in re.findall(r"(mcts-\d+) +(\d+)  \+", captured.err)}
    assert {name: abs(elo - 191) < 120 for name, elo in shown.items()} == dict.fromkeys(OF_PLAYOUTS[1:], True)
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "0 by definition" in out and "from 96 games" in out


def test_the_ladder_of_a_game_is_played_once_and_continues_after_an_interruption(
    playouts, first_one_run, monkeypatch, capsys
) -> None:
    argv = ["rate", str(first_one_run), "--game", FIRST_ONE, *playouts, "--json"]
    played: list[tuple[str, int]] = []
    play = Rater._play

    def counting(self, shown, player, other, first, pairs):
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append((player.name, first))
        return play(self, shown, player, other, first, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(Rater, "_play", counting)
        with contextlib.suppress(KeyboardInterrupt):
            main(argv)
    assert played == [("mcts-16", 0), ("mcts-16", 8)]
    played.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Rater, "_play", lambda *all: played.append((all[2].name, all[4])) or play(*all))
        assert main(argv) == 0
        assert played[:4] == [("mcts-16", 16), ("mcts-64", 0), ("mcts-64", 8), ("mcts-64", 16)]
        first = json.loads(capsys.readouterr().out)
        played.clear()
        assert main(argv) == 0
    assert not [name for name, _ in played if name.startswith("mcts")]
    assert json.loads(capsys.readouterr().out) == first


def test_checkpoints_of_any_game_are_rated(playouts, first_one_run, capsys) -> None:
    assert main(["rate", str(first_one_run), "--game", FIRST_ONE, "--checkpoints", *playouts]) == 0
    assert "@best-elo is step-" in capsys.readouterr().err
    kept = [json.loads(line) for line in (first_one_run / "ratings.jsonl").read_text().splitlines()]
    assert [rating["step"] for rating in kept] == [1, 2]
    assert len({rating["ladder"] for rating in kept}) == 1


@pytest.mark.parametrize("game", ["tictactoe", "openspiel:tic_tac_toe"])
def test_games_of_the_core_and_of_openspiel_have_a_ladder_too(playouts, game, tmp_path, capsys) -> None:
    if game.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    net = write_small_net(tmp_path / "net.pt", read_game("--game", game))
    assert main(["rate", net, *playouts, "--json"]) == 0
    captured = capsys.readouterr()
    (rating,) = json.loads(captured.out)
    assert rating["games"] == 16 and {met["name"] for met in rating["opponents"]} <= set(OF_PLAYOUTS)
    assert f"ladder of {game}: " in captured.err or "mcts-64" in captured.err


def test_the_ladder_is_whole() -> None:
    rungs = read_ladder()
    ratings = {rung["name"]: rung["rating"] for rung in rungs}
    assert len(ratings) == len(rungs) >= 8 and ratings["maia-1100"] == 1100
    assert list(ratings.values()) == sorted(ratings.values()) and rungs[0]["name"] == "random"
    for rung in rungs:
        assert ("nodes" in rung) == (rung["kind"] in ("weights", "stockfish"))
        assert ("file" in rung) == (rung["kind"] == "weights")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["{chess}", "{connect4}"], "connect4.pt: plays connect4; expected chess, as the ladder is"),
        (["{connect4}", "--openings", "balanced"], "--openings balanced: only for chess; this is connect4"),
        (["{connect4}", "--games=3"], "--games 3: expected an even number"),
        (["{connect4}", "--checkpoints"], "connect4.pt: no checkpoints found; --checkpoints expects"),
        (["{connect4}", "--ladder", "no-such"], "--ladder no-such: expected a directory"),
        (["no-such.pt"], "no-such.pt: no such file or directory"),
        ([], "W"),
    ],
)
def test_what_cannot_be_rated_is_one_line(small_ladder, tmp_path, monkeypatch, argv, told, capsys) -> None:
    monkeypatch.chdir(tmp_path)  # without runs, of which the newest would be rated
    nets = {game: write_small_net(tmp_path / f"{game}.pt", game) for game in ("chess", "connect4")}
    quick = ["--games", "2", "--simulations", "2"]
    assert main(["rate", *quick, *(word.format(**nets) for word in argv)]) == 2
    said = capsys.readouterr().err
    assert told in said.splitlines()[-1]
