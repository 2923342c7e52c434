"""A game and the network's opening moves as viewers show them."""

import pyarrow as pa
import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig
from alphazero.training.sources.shown_texts import game_text, opening_text


def test_a_game_is_its_last_position_its_moves_and_its_result():
    row = {"moves": [3, 3, 2, 4], "result": -1, "end": "RESIGNATION", "termination": "NONE"}
    assert game_text("connect4", pa.RecordBatch.from_pylist([row, row])).splitlines() == [
        "      . . . . . . .",
        "      . . . . . . .",
        "      . . . . . . .",
        "      . . . . . . .",
        "      . . . o . . .",
        "      . . x x o . .",
        "      1 2 3 4 5 6 7",
        "",
        "1. 4 4 2. 3 5 0-1 (resignation)",
    ]


def test_the_opening_has_every_move_with_its_share_and_what_the_mover_expects():
    config = NetworkConfig(game="connect4", blocks=1, filters=8, value_hidden=8)
    network = AlphaZeroNet(config, get_spec("connect4"), torch.Generator().manual_seed(0)).eval()
    text = opening_text(network, "connect4", torch.device("cpu"), "fp32")
    lines = text.splitlines()
    assert lines[8].startswith("To move: win ")
    rows = [line.strip("| ").split(" | ") for line in lines[12:]]
    assert sorted(move for move, _ in rows) == list("1234567")
    shares = [float(share.rstrip("%")) for _, share in rows]
    assert shares == sorted(shares, reverse=True) and abs(sum(shares) - 100) < 1
