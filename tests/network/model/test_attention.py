"""The attention body: what is recomputed in the backward pass changes nothing but memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_spec
from alphazero.network.model.attention import attend
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import LossConfig, NetworkConfig, TrainingConfig
from alphazero.training.engine.training_module import TrainingModule
from tests.support.network.attention_bodies import SMALL_ATTENTION

# Shapes: B positions, N heads, Q squares, D channels of a head, G numbers of smolgen per head.


def network_of(config: NetworkConfig, checkpointing: str = "none") -> AlphaZeroNet:
    network = AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(1)).train()
    network.body.checkpointing = checkpointing
    return network


def gradients(config: NetworkConfig, checkpointing: str) -> tuple[dict[str, Tensor], int]:
    """Of a loss that touches every output; and the bytes that the backward pass found kept."""
    network = network_of(config, checkpointing)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    planes_BPHW = torch.rand(8, 112, 8, 8, generator=torch.Generator().manual_seed(2)).lt(0.1).float()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(planes_BPHW)
        loss = output.policy_BA.square().mean() + output.wdl_B3.square().mean()
    size = sum(kept.values())
    loss.backward()
    return {name: each.grad for name, each in network.named_parameters() if each.grad is not None}, size


@pytest.mark.parametrize("changes", [{}, {"smolgen_channels": 0}, {"embedding": "map"}])
def test_gradients_are_equal_and_fewer_bytes_are_kept(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL_ATTENTION, **changes)
    plain, size = gradients(config, "none")
    for checkpointing in ("scores", "encoders"):
        recomputed, less = gradients(config, checkpointing)
        assert recomputed.keys() == plain.keys()
        for name, gradient in plain.items():
            torch.testing.assert_close(recomputed[name], gradient, rtol=0, atol=0, msg=name)
        assert less < size
        size = less


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("with_smolgen", [True, False])
def test_attention_is_torchs(with_smolgen: bool, is_plain: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    query_BNQD, key_BNQD, value_BNQD = torch.randn(3, 2, 4, 9, 5, generator=draw)
    generated_BNG, scores_of = torch.randn(2, 4, 6, generator=draw), torch.nn.Linear(6, 81, bias=False)
    generated = generated_BNG if with_smolgen else None
    found = attend(query_BNQD, key_BNQD, value_BNQD, generated, scores_of, is_plain)
    mask_BNQQ = scores_of(generated_BNG).view(2, 4, 9, 9) if with_smolgen else None
    wanted = functional.scaled_dot_product_attention(query_BNQD, key_BNQD, value_BNQD, attn_mask=mask_BNQQ)
    torch.testing.assert_close(found, wanted)


def test_the_setting_reaches_the_body_and_a_tower_refuses_it() -> None:
    module = TrainingModule(
        network_of(SMALL_ATTENTION), LossConfig(), TrainingConfig(activation_checkpointing="scores")
    )
    assert module.network.body.checkpointing == "scores"
    tower = AlphaZeroNet(NetworkConfig(blocks=1, filters=4), get_spec("chess"))
    with pytest.raises(ConfigError, match="activation_checkpointing encoders: "):
        TrainingModule(tower, LossConfig(), TrainingConfig(activation_checkpointing="encoders"))
