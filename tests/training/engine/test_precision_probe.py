"""The precision of a CPU is timed, not guessed."""

import itertools

import pytest
import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import LossConfig, NetworkConfig, OptimizerConfig, TrainingConfig
from alphazero.training.engine.deepspeed_config import Recipe
from alphazero.training.engine.probe import (
    NUM_TIMED,
    fastest_precision,
    positions_of_a_pass,
    seconds_per_pass,
)

SPEC = get_spec("connect4")
RECIPE = Recipe(TrainingConfig(batch_size=2), OptimizerConfig(), LossConfig())


def small_network() -> AlphaZeroNet:
    """A tower of one block."""
    return AlphaZeroNet(
        NetworkConfig(game="connect4", blocks=1, filters=8), SPEC, torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([{"bf16": 1.0, "fp32": 2.0}], "bf16"),
        ([{"bf16": 2.0, "fp32": 1.0}], "fp32"),
        ([{"bf16": 0.96, "fp32": 1.0}], "fp32"),  # too little to give up digits for
        ([{"bf16": 0.95, "fp32": 1.0}], "bf16"),
        ([{"bf16": 1.0, "fp32": 2.0}, {"bf16": 3.0, "fp32": 2.0}], "fp32"),  # the slowest rank decides
        ([{"bf16": 1.0, "fp32": 1.0}, {"bf16": 2.0, "fp32": 3.0}], "bf16"),
    ],
)
def test_all_ranks_take_what_is_fastest_on_the_slowest(seconds, expected):
    assert fastest_precision(seconds) == expected


def test_precisions_take_turns_and_the_least_time_of_each_counts():
    """A clock that shows 1, 2, 3 ... squared, in thousandths: each pass looks longer than the one before."""
    times = (number * number / 1000 for number in itertools.count(1))
    seconds = seconds_per_pass(small_network(), RECIPE, ("bf16", "fp32"), 1, lambda: next(times))
    # Readings: 1 at the beginning; 4 and 9 around the first pass in bf16, 16 and 25 around that in fp32.
    assert seconds == {"bf16": pytest.approx(0.005), "fp32": pytest.approx(0.009)}


def test_slow_passes_are_timed_once():
    readings = itertools.count(0.0, 2.0)
    shown = []

    def clock() -> float:
        shown.append(next(readings))
        return shown[-1]

    seconds_per_pass(small_network(), RECIPE, ("bf16", "fp32"), 1, clock)
    assert len(shown) == 1 + 2 * 2 + 1 < 1 + NUM_TIMED * 5


@pytest.mark.parametrize(
    ("blocks", "filters", "most", "expected"),
    [(6, 64, 256, 64), (6, 64, 16, 16), (20, 256, 256, 4), (20, 256, 2, 2), (1, 8, 256, 64)],
)
def test_a_large_network_is_timed_on_few_positions(blocks, filters, most, expected):
    network = AlphaZeroNet(NetworkConfig(blocks=blocks, filters=filters), get_spec("chess"))
    assert positions_of_a_pass(network, most) == expected


def test_timing_leaves_the_network_and_the_generators_as_they_were():
    network = small_network()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    generator = torch.get_rng_state()
    seconds = seconds_per_pass(network, RECIPE, ("bf16", "fp32"), 1)
    assert seconds.keys() == {"bf16", "fp32"}
    assert all(0 < value < 60 for value in seconds.values())
    assert torch.equal(torch.get_rng_state(), generator)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in network.parameters())
