"""Attention bodies in lc0's files that cannot be read are refused by name; lc0 judges those that can."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from alphazero.base.errors import ConfigError, WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.model.attention import OtherHeads
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.lc0_export import to_lc0
from alphazero.network.weights.lc0_schema import net_class
from alphazero.network.weights.lc0_weights import parse_lc0
from alphazero.settings.sections import NetworkConfig
from tests.network.weights.test_lc0_export import random_network
from tests.support.network.attention_bodies import SMALL_ATTENTION

BODY = dataclasses.replace(SMALL_ATTENTION, moves_left=True)


def headcount(number: int) -> Callable[[Any], None]:
    return lambda net: setattr(net.weights, "headcount", number)


def without(name: str) -> Callable[[Any], None]:
    return lambda net: net.weights.ClearField(name)


def layout(**fields: int) -> Callable[[Any], None]:
    def change(net: Any) -> None:
        for name, value in fields.items():
            setattr(net.format.network_format, name, value)

    return change


CHANGES: dict[str, Callable[[Any], None]] = {
    "smolgen in some encoders only": lambda net: net.weights.encoder[1].mha.ClearField("smolgen"),
    "relative positions": lambda net: setattr(net.weights.encoder[0].mha, "rpe_k", b"12"),
    "encoders in a policy head": lambda net: net.weights.policy_heads.soft.pol_encoder.append(b""),
    "encoders in a policy head: expected": lambda net: net.weights.pol_encoder.append(b""),
    "heads by other names": lambda net: net.weights.value_heads.value_head_map.append(b""),
    "vanilla has a separate embedding": lambda net: net.weights.policy_heads.vanilla.ip_pol_w.CopyFrom(
        net.weights.policy_heads.ip_pol_w
    ),
    "smolgen's numbers per head: 8 weights, expected a positive multiple of 0": headcount(0),
    "smolgen's numbers per head: 8 weights, expected a positive multiple of 3": headcount(3),
    "input embedding of kind 3": layout(input_embedding=3),
    "ffn_activation 5: expected one of": layout(ffn_activation=5),
    "network format default_activation 2": layout(default_activation=2),
    "body.scores.weight: 0 numbers": without("smolgen_w"),
    "body.embedding.gate.term_CQ: 0 numbers": without("ip_add_gate"),
    "smolgen's channels: 32 weights, expected a positive multiple of 0": without("ip_emb_b"),
    "dense embedding: 0 weights": without("ip_emb_preproc_b"),
    "body.embedding.ffn.second.weight: 0 numbers": lambda net: net.weights.ip_emb_ffn.ClearField("dense2_w"),
    "attention body of 2 encoders behind 1 residual blocks": lambda net: net.weights.residual.add(),
    "attention body of 0 encoders": without("encoder"),
    "value.reduce.weight": lambda net: setattr(net.weights.value_heads.winner.ip_val_w, "params", bytes(2)),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_cannot_be_read_is_refused_by_name(words: str) -> None:
    net = net_class().FromString(to_lc0(BODY, random_network(BODY).state_dict(), 1, ""))
    CHANGES[words](net)
    with pytest.raises(WeightsError) as caught:
        parse_lc0(net.SerializeToString())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a", "a=x", "a.b=3", "a=1 a=2", "=3", "a=12345678901"])
def test_the_names_of_other_heads_are_checked(text: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME=SIZE"):
        OtherHeads(text)


def test_heads_that_do_not_divide_the_channels_are_refused() -> None:
    config = NetworkConfig(body="attention", policy_head="attention", filters=30, heads=4)
    with pytest.raises(ConfigError, match=r"heads 4: .*30"):
        AlphaZeroNet(config, get_spec("chess"))
