"""`alphazero eval` as a user types it, on small PGN files and a small network."""

import json
from pathlib import Path

import chess
import chess.pgn
import numpy as np
import pytest
import torch

from alphazero.cli.main import main
from alphazero.cli.measuring.eval_suites import draw
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig
from tests.support.paths import REPOSITORY

SHARED = "1. e4 e5 2. Nf3 Nc6"
ONE = f'[Result "1-0"]\n\n{SHARED} 3. Bb5 a6 4. Ba4 Nf6 1-0\n'
TWO = f'[Result "0-1"]\n\n{SHARED} 3. Bc4 Bc5 4. c3 Nf6 5. d3 d6 0-1\n'
# Another way to a position of ONE: only history and counters differ.
TRANSPOSED = '[Result "1/2-1/2"]\n\n1. Nf3 Nc6 2. e4 e5 3. Bb5 f5 1/2-1/2\n'


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """PGN files, weights and a cache directory, by name."""
    made = {"cache": str(tmp_path / "cache")}
    for name, text in (("one", ONE), ("two", TWO), ("transposed", TRANSPOSED), ("broken", "nothing\n")):
        made[name] = str(tmp_path / f"{name}.pgn")
        Path(made[name]).write_text(text)
    for seed, game in ((0, "chess"), (1, "chess"), (2, "tictactoe")):
        config = NetworkConfig(game=game, blocks=1, filters=8)
        network = AlphaZeroNet(config, get_spec(game), torch.Generator().manual_seed(seed))
        made[f"net{seed}"] = str(tmp_path / f"net{seed}.pt")
        save_weights(Path(made[f"net{seed}"]), network, {})
    return made


def evaluate(files: dict[str, str], capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    """The JSON that `alphazero eval` prints."""
    assert main(["eval", *arguments, "--cache-dir", files["cache"], "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def keys_by_python_chess(text: str) -> list[str]:
    """Placement, turn, castling and legal en passant square before each move."""
    import io

    game = chess.pgn.read_game(io.StringIO(text))
    board, keys = game.board(), []
    for move in game.mainline_moves():
        keys.append(" ".join(board.fen(en_passant="legal").split()[:4]))
        board.push(move)
    return keys


def test_each_network_is_measured_on_the_same_positions(files, capsys: pytest.CaptureFixture[str]):
    both = evaluate(
        files, capsys, "--weights", files["net0"], files["net1"], "--data", files["one"], files["two"]
    )
    assert both["positions_in_data"] == both["positions_eligible"] == 18
    assert [network["weights"] for network in both["networks"]] == [files["net0"], files["net1"]]
    assert all(network["num_positions"] == 18 for network in both["networks"])
    assert both["networks"][0]["policy_loss"] != both["networks"][1]["policy_loss"]
    small = ("--batch-size", "4", "--data", files["one"], files["two"])
    alone = evaluate(files, capsys, "--weights", files["net1"], *small)
    for name in ("policy_loss", "value_loss", "value_mse", "policy_top1", "policy_top5"):
        assert alone["networks"][0][name] == pytest.approx(both["networks"][1][name], rel=1e-5)
    # An untrained network knows next to nothing: the entropy of the legal moves, of win, draw and loss.
    assert 2.5 < both["networks"][0]["policy_loss"] < 4.5
    assert 0.6 < both["networks"][0]["value_loss"] < 2.0


@pytest.mark.parametrize(("data", "other"), [("two", "one"), ("one", "two"), ("one", "transposed")])
def test_positions_that_occur_in_the_training_data_are_left_out(
    files, data: str, other: str, capsys: pytest.CaptureFixture[str]
):
    texts = {"one": ONE, "two": TWO, "transposed": TRANSPOSED}
    seen = set(keys_by_python_chess(texts[other]))
    keys = keys_by_python_chess(texts[data])
    found = evaluate(
        files, capsys, "--weights", files["net0"], "--data", files[data], "--not-in", files[other]
    )
    assert found["positions_in_data"] == len(keys)
    assert found["positions_eligible"] == sum(key not in seen for key in keys) < len(keys)


def test_the_table_says_what_was_left_out(files, capsys: pytest.CaptureFixture[str]):
    arguments = ["--weights", files["net0"], "--data", files["two"], "--not-in", files["one"]]
    assert main(["eval", *arguments, "--positions", "3", "--seed", "1", "--cache-dir", files["cache"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 of 10 ") and "5 (50.0%) do not" in lines[0]
    assert lines[2].split() == [
        "weights",
        "top-1",
        "top-5",
        "policy",
        "loss",
        "value",
        "loss",
        "value",
        "mse",
    ]
    assert lines[3].startswith(files["net0"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "none.pt", "--data", "one"], "network none.pt: no such file or directory"),
        (["--weights", "one", "--data", "one"], "one.pgn: no weights file"),
        (["--weights", "net0", "--data", "none.pgn"], "none.pgn"),
        (["--weights", "net0", "--data", "broken"], "no game could be imported"),
        (["--weights", "net2", "--data", "one"], "net2.pt: plays tictactoe, --data holds chess"),
        (
            ["--weights", "net0", "--data", "one", "--not-in", "one"],
            "--not-in: holds all 8 positions of --data",
        ),
        (["--weights", "net0", "--data", "one", "--positions", "0"], "'0': expected a whole number from 1"),
        (["--weights", "net0", "--data", "one", "--seed", "-1"], "'-1': expected a whole number"),
        (["--weights", "net0", "--solved", "--positions", "9"], "--positions: not with --solved"),
        (["--weights", "net0", "--solved", "--seed", "0"], "--seed: not with --solved"),
        (["--weights", "net0"], "expected --data PATH... with known games, or --solved"),
    ],
)
def test_a_wrong_file_or_flag_is_one_line_and_exit_code_2(
    files, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    words = [files.get(word, word) for word in arguments]
    assert main(["eval", *words, "--cache-dir", files["cache"], "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.splitlines()[-1].startswith("alphazero: error: ")
    assert "Traceback" not in said


def test_positions_are_drawn_evenly_or_by_seed_without_repeats():
    eligible = np.arange(100, 200, dtype=np.int64)
    assert draw(eligible, 4, None).tolist() == [100, 125, 150, 175]
    assert draw(eligible, 1000, None).tolist() == eligible.tolist()
    drawn = draw(eligible, 50, 7)
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert set(drawn.tolist()) <= set(eligible.tolist())
    assert drawn.tolist() == draw(eligible, 50, 7).tolist() != draw(eligible, 50, 8).tolist()


@pytest.mark.slow
def test_two_processes_find_what_one_finds(files, random_store, capsys: pytest.CaptureFixture[str]):
    """Of the same batches, in fp32: the sums differ by rounding at most, 1e-6 of a figure."""
    argv = ["--weights", files["net0"], files["net1"], "--data", str(random_store)]
    argv += ["--positions", "1001", "--batch-size", "64"]
    alone = evaluate(files, capsys, *argv)
    together = evaluate(files, capsys, *argv, "--gpus", "2")
    networks = [found.pop("networks") for found in (alone, together)]
    assert alone == together and len(networks[0]) == 2
    few = ["--weights", files["net0"], "--data", files["one"]]  # one batch: nothing for the second process
    assert evaluate(files, capsys, *few, "--gpus", "2")["networks"][0]["num_positions"] == 8
    for one, two in zip(*networks, strict=True):
        assert one["num_positions"] == 1001
        assert two == {
            name: value if name == "weights" else pytest.approx(value, rel=1e-6)
            for name, value in one.items()
        }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "net2", "--data", "one"], "net2.pt: plays tictactoe, --data holds chess"),
        (["--weights", "none.pt", "--data", "one"], "network none.pt: no such file or directory"),
        (["--weights", "net2", "--solved"], "--gpus 2: --solved runs in one process; expected 1"),
    ],
)
def test_a_mistake_that_a_process_or_its_parent_finds_is_one_line(
    files, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    argv = [files.get(word, word) for word in words]
    argv += ["--cache-dir", files["cache"], "--device", "cpu", "--gpus", "2"]
    assert main(["eval", *argv]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("alphazero: error: ")]
    assert len(errors) == 1 and message in errors[0]


@pytest.mark.slow
def test_maia_1500_predicts_embedded_games_far_better_than_chance(
    files, shared_data: Path, capsys: pytest.CaptureFixture[str]
):
    games = str(REPOSITORY / "alphazero" / "assets" / "games")
    maia = str(shared_data / "lc0" / "maia-1500.pb.gz")
    figures = evaluate(files, capsys, "--weights", maia, "--data", games, "--positions", "2000")["networks"][
        0
    ]
    assert figures["policy_top1"] > 0.33
    assert figures["policy_loss"] < 2.5
    assert figures["value_mse"] < 0.6
