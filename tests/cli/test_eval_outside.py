"""`alphazero eval --solved --solver`: errors in the positions of a game outside the core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from alphazero.cli.main import main
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import get_spec, make_line, read_game
from alphazero.measure.truth.outside import positions_to_err_in
from alphazero.measure.truth.positions import SolvedPlayer
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import save_weights
from alphazero.settings.sections import NetworkConfig
from tests.support.games.exact import exact_value
from tests.support.paths import REPOSITORY

NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"


def small_net(path: Path, game: str, seed: int = 0) -> AlphaZeroNet:
    config = NetworkConfig(game=read_game("--game", game), blocks=1, filters=8)
    network = AlphaZeroNet(config, get_spec(config.game), torch.Generator().manual_seed(seed))
    save_weights(path, network, {})
    return network.eval()


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["eval", *words, "--solved", "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_errors_in_every_position_are_those_that_plain_search_finds(tmp_path: Path, capsys) -> None:
    game = read_game("--game", NIM)
    network = small_net(tmp_path / "w.pt", NIM)
    found = positions_to_err_in(game, "exact", 1000, only_errors=False)
    known: dict[str, float] = {}
    errors = asked = 0
    for one in found:
        line = make_line(game, ",".join(map(str, one.moves)) or "start")
        (move,) = SolvedPlayer(network, torch.device("cpu"), "fp32")([line])
        state = rules_of(game).start.clone()
        for action in one.moves:
            state.apply_action(action)
        values = {}
        for action in state.legal_actions():
            after = state.clone()
            after.apply_action(action)
            values[action] = (1 if state.player == 0 else -1) * exact_value(after, known)
        asked += len(set(values.values())) > 1
        errors += values[move] < max(values.values())
    figures = evaluated(capsys, str(tmp_path / "w.pt"), "--solver", "exact", "--simulations", "400")
    (of_network,) = figures["networks"]
    (row,) = of_network["sets"]
    assert (figures["positions"], row["positions"]) == (len(found), asked)
    assert 0 < row["errors"]["network alone"] == errors
    assert row["errors"]["400 simulations"] == 0  # which search Nim of six objects to its end


def test_a_number_of_positions_is_drawn_by_a_seed_and_printed_as_a_table(tmp_path: Path, capsys) -> None:
    nets = [str(tmp_path / f"{seed}.pt") for seed in (1, 2)]
    for seed, net in enumerate(nets):
        small_net(Path(net), NIM, seed)
    words = ("--solver", "exact", "--positions", "20")
    one, two = (evaluated(capsys, *nets, *words, "--seed", str(seed)) for seed in (3, 4))
    assert one["positions"] == two["positions"] == 20 and one != two
    assert one == evaluated(capsys, *nets, *words, "--seed", "3")
    assert main(["eval", *nets, "--solved", "--device", "cpu", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("20 positions of random games of nim.py:Nim(piles=3)@")
    assert [line.split(":")[0] for line in lines if ": moves that" in line] == nets
    assert lines[4].split()[:2] == ["set", "positions"] and lines[-1].startswith("all")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("w", "--solved"), "; expected connect4, or --solver exact or FILE.py:NAME"),
        (("w", "--solver", "exact"), "--solver: only with --solved"),
        (("c", "--solved", "--solver", "exact"), "connect4 is this program's own"),
        (("w", "c", "--solved", "--solver", "exact"), "c.pt: plays connect4; expected nim.py:Nim(piles=3)"),
        (("w", "--solved", "--solver", "perfect"), "--solver: 'perfect': expected exact or FILE.py:NAME"),
        (("t", "--solved"), "t.pt: plays tictactoe; expected connect4"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, capsys, words: tuple[str, ...], message: str) -> None:
    small_net(tmp_path / "w.pt", NIM)
    small_net(tmp_path / "c.pt", "connect4")
    small_net(tmp_path / "t.pt", "tictactoe")
    argv = [str(tmp_path / f"{word}.pt") if len(word) == 1 else word for word in words]
    assert main(["eval", *argv, "--device", "cpu"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
