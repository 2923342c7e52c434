"""The norm of the gradients that a step reports, against autograd's on a plain copy of the network."""

import pytest
import torch

from alphazero.network.model.loss import loss_terms
from alphazero.network.model.planes import expand_planes, to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import LossConfig
from alphazero.training.engine.probe import random_batch
from tests.support.training.lone_engine import POSITIONS, SHARED_OUT, SPEC


def plain_norm(config):
    """Of the loss of the batch that LoneEngine.step trains on."""
    network = AlphaZeroNet(config, SPEC, torch.Generator().manual_seed(0)).train()
    batch = to_device(random_batch(SPEC, POSITIONS), torch.device("cpu"))
    loss_terms(LossConfig(), network(expand_planes(batch.packed_BN, SPEC)), batch).total.backward()
    return torch.stack([parameter.grad.norm() for parameter in network.parameters()]).norm().item()


@pytest.mark.parametrize("clip_gradients", [0.01, 0.0])
@pytest.mark.parametrize(("stage", "settings"), [*((stage, None) for stage in range(4)), (3, SHARED_OUT)])
def test_it_is_that_of_the_mean_before_clipping(lone_engine, stage, settings, clip_gradients):
    engine = lone_engine.make(settings, zero_stage=stage, clip_gradients=clip_gradients)
    assert (engine._flat is None) == (settings is SHARED_OUT)
    config = engine.network.config
    lone_engine.step(engine, num_micro_batches=2)  # the same batch twice: their mean is that of one
    assert float(engine.take_verdict().gradient_norm) == pytest.approx(plain_norm(config), rel=1e-4)
