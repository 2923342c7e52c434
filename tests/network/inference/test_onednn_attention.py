"""Attention bodies on the CPU: what the fused forward pass says beside the modules in double precision."""

import dataclasses

import numpy as np
import pytest
import torch

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_spec
from alphazero.network.inference.attention import OneDnnAttention
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.onednn import why_not_onednn
from alphazero.network.model.precision import DTYPES, evaluation_precision
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig
from tests.support.network.attention_bodies import SMALL_ATTENTION
from tests.support.network.evaluator_nets import positions

CPU = torch.device("cpu")
BATCH = 12
CHESS = dataclasses.replace(
    SMALL_ATTENTION,
    **{"filters": 36, "heads": 3, "ffn_width": 40, "smolgen_channels": 4, "smolgen_hidden": 24},
    **{"smolgen_size": 16, "embedding_width": 16, "value_hidden": 24},
)
CONNECT4 = dataclasses.replace(CHESS, game="connect4", policy_head="convolution")
SHAPES = {
    "dense": CHESS,
    "map": dataclasses.replace(CHESS, embedding="map"),
    "without smolgen and gates": dataclasses.replace(CHESS, smolgen_channels=0, gates=False),
    "widths": dataclasses.replace(
        CHESS, attention_width=48, policy_width=20, policy_key_width=28, embedding_ffn_width=44
    ),
    "relu and squared relu": dataclasses.replace(CHESS, activation="relu", ffn_activation="relu_2"),
    "relu on a map": dataclasses.replace(CHESS, activation="relu", embedding="map"),
    "swish and mish": dataclasses.replace(CHESS, ffn_activation="swish", smolgen_activation="mish"),
    "connect4": CONNECT4,
    "connect4 with a map": dataclasses.replace(CONNECT4, embedding="map"),
}


def network_like(config: NetworkConfig, seed: int = 4) -> AlphaZeroNet:
    """Every norm, gate and bias changes something."""
    generator = torch.Generator().manual_seed(seed)
    network = AlphaZeroNet(config, get_spec(config.game), generator)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return network


def planes_like(network: AlphaZeroNet) -> torch.Tensor:
    spec = network.spec
    shape = (BATCH, spec.num_planes, spec.board_height, spec.board_width)
    planes = torch.rand(shape, generator=torch.Generator().manual_seed(1)).lt(0.2).float()
    return planes.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", SHAPES)
@torch.inference_mode()
def test_the_fused_pass_is_as_near_to_the_exact_result_as_the_modules(name, precision):
    network, dtype = network_like(SHAPES[name]), DTYPES[precision]
    if reason := why_not_onednn(dtype):
        pytest.skip(reason)
    planes = planes_like(network)
    exact = ModuleForward(network, CPU, torch.float64)(planes.double())
    plain = ModuleForward(network, CPU, dtype)(planes.to(dtype))
    fused = OneDnnAttention(network, dtype, BATCH)(planes.to(dtype))
    for one, other, true in zip(fused, plain, exact, strict=True):
        assert one.shape == other.shape and one.is_contiguous()
        scale = true.abs().max()
        error, usual = ((each.double() - true).abs().max() / scale for each in (one, other))
        assert error < 3 * usual + 1e-6, f"{error:.1e} where the modules err by {usual:.1e}"


@pytest.mark.parametrize("name", SHAPES)
def test_new_weights_are_those_of_a_new_evaluator(name):
    if reason := why_not_onednn(torch.bfloat16):
        pytest.skip(reason)
    old, new = network_like(SHAPES[name], 4), network_like(SHAPES[name], 5)
    arrays = positions(new.config.game, BATCH)
    evaluator = NetworkEvaluator(old, CPU, "bf16", BATCH)
    assert "fused attention" in evaluator.description
    before = evaluator(*arrays)
    evaluator.load(new.state_dict())
    after = evaluator(*arrays)
    np.testing.assert_array_equal(after.wdl, NetworkEvaluator(new, CPU, "bf16", BATCH)(*arrays).wdl)
    assert not np.array_equal(after.wdl, before.wdl)


@torch.inference_mode()
def test_the_evaluator_does_not_follow_the_network_it_was_made_from():
    network = network_like(CHESS)
    planes = planes_like(network)
    forward = OneDnnAttention(network, torch.float32, BATCH)
    before = forward(planes)
    for parameter in network.parameters():
        parameter.zero_()
    for one, other in zip(forward(planes), before, strict=True):
        assert torch.equal(one, other)


def test_int8_is_refused_by_name_and_not_chosen():
    with pytest.raises(ConfigError) as refused:
        NetworkEvaluator(network_like(CHESS), CPU, "int8", BATCH)
    assert str(refused.value).startswith("--precision int8: attention")
    assert evaluation_precision("auto", "bf16", CPU, "attention") == "bf16"
    with pytest.raises(ConfigError, match="precision int8: attention"):
        evaluation_precision("int8", "bf16", CPU, "attention")
