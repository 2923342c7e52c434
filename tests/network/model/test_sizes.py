"""The size of networks, by hand: numbers, operations, and bytes that a rank keeps."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from alphazero.network.model.sizes import (
    forward_flops,
    on_meta_device,
    rank_bytes,
)
from alphazero.settings.load import load_config
from alphazero.settings.sections import NetworkConfig
from alphazero.training.engine.optimizer import state_numbers
from tests.support.network.attention_bodies import SMALL_ATTENTION

SQUARES = 64
TINY = dataclasses.replace(
    SMALL_ATTENTION, blocks=1, filters=4, ffn_width=8, smolgen_hidden=16, smolgen_size=16, embedding="map"
)


def size_of(config: NetworkConfig) -> tuple[int, int]:
    """Numbers and operations."""
    return on_meta_device(config).parameter_count(), forward_flops(config)


def test_an_encoder_has_the_numbers_and_operations_of_a_hand_calculation() -> None:
    """4 channels, 2 heads of 2, 8 units; smolgen with 2 channels and 16 units for each of 2 heads."""
    one, two = (size_of(dataclasses.replace(TINY, blocks=blocks)) for blocks in (1, 2))
    attention, feed_forward, norms = 4 * (4 * 4 + 4), (4 * 8 + 8) + (8 * 4 + 4), 2 * 2 * 4
    smolgen = 4 * 2 + (64 * 2 * 16 + 16) + 2 * 16 + (16 * 32 + 32) + 2 * 32
    assert two[0] - one[0] == attention + feed_forward + norms + smolgen == 2884
    products = SQUARES * (4 * 4 * 4 + 2 * 4 * 8)  # queries, keys, values, output; feed-forward
    products += 2 * 2 * SQUARES**2 * 2  # of queries and keys, and of shares and values
    products += SQUARES * 4 * 2 + 128 * 16 + 16 * 32 + 2 * 16 * SQUARES**2  # smolgen
    assert two[1] - one[1] == 2 * products == 350208


@pytest.mark.parametrize("body", ["residual", "attention"])
def test_operations_are_those_of_a_pass_through_all_blocks(body: str) -> None:
    config = dataclasses.replace(TINY, body=body, blocks=4)
    network = on_meta_device(config)
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 112, 8, 8, device="meta"))
    assert forward_flops(config) == counter.get_total_flops()


def test_a_known_tower_has_the_operations_that_are_published_for_it() -> None:
    """20x256: 3.15 G operations and 24.9 M numbers, of which convolutions are 2 x 40 x 64 x 9 x 256^2."""
    flop = forward_flops(load_config("chess_20x256", {}).network)
    assert 2 * 40 * 64 * 9 * 256**2 < flop < 1.05 * 2 * 40 * 64 * 9 * 256**2


@pytest.mark.parametrize(
    ("preset", "millions", "of_lc0"),
    [pytest.param("chess_bt3", 99.3, 105.5, marks=pytest.mark.slow), ("chess_bt4", 161.6, 191.3)],
)
def test_presets_of_lc0s_networks_lack_its_further_heads_and_wide_embedding(
    preset: str, millions: float, of_lc0: float
) -> None:
    """lc0's have 512 numbers a square in the embedding, and heads that do not play."""
    network = load_config(preset, {}).network
    assert size_of(network)[0] / 1e6 == pytest.approx(millions, abs=0.05)
    wide = dataclasses.replace(network, embedding_width=512)
    assert millions < size_of(wide)[0] / 1e6 < 1.2 * of_lc0


def test_what_a_rank_keeps_by_hand() -> None:
    """A matrix of 200,000 numbers and a small one of 100, two moments for each number, on 4 ranks."""
    network = nn.Sequential(nn.Linear(400, 500, bias=False), nn.Linear(10, 10, bias=False))
    weights = gradients = masters = 4 * 200_100
    moments = 2 * weights
    numbers = 2 * 200_100
    assert rank_bytes(network, numbers, 0, 4) == weights + gradients + moments
    assert rank_bytes(network, numbers, 1, 4) == weights + gradients + (masters + moments) // 4
    assert rank_bytes(network, numbers, 2, 4) == weights + (gradients + masters + moments) // 4
    assert rank_bytes(network, numbers, 3, 4) == (weights + gradients + masters + moments) // 4 + 400


def test_muon_keeps_one_moment_of_the_bodys_matrices() -> None:
    network = on_meta_device(TINY)
    matrices = sum(
        parameter.numel()
        for name, parameter in network.named_parameters()
        if parameter.ndim > 1 and name.startswith(("body.encoders.", "body.scores."))
    )
    assert matrices
    assert state_numbers(network, "muon") == state_numbers(network, "adamw") - matrices
    assert state_numbers(network, "sgd") == network.parameter_count() == state_numbers(network, "adamw") // 2


def test_a_billion_numbers_are_counted_without_a_weight() -> None:
    parameters, _ = size_of(load_config("chess_1b", {}).network)
    assert 1.1e9 < parameters < 1.2e9
    assert 2 * parameters > 2**31  # more than a file of lc0 holds
