"""The network that plays: an evaluator of the run's weights as they are shared, whole."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alphazero.config import NetworkConfig
from alphazero.games.spec import GameSpec
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.ladder import EvenLadder, evaluator_for_self_play
from alphazero.network.model.resnet import AlphaZeroNet


def make_evaluator(
    tensors: Mapping[str, torch.Tensor],
    network: NetworkConfig,
    spec: GameSpec,
    device: torch.device,
    precision: str,
    batch_size: int,
) -> NetworkEvaluator | EvenLadder:
    """An evaluator of these weights; they are taken over, not copied, and no other ones are made first."""
    with torch.device("meta"):
        module = AlphaZeroNet(network, spec)
    module.adopt(tensors)
    return evaluator_for_self_play(module.eval(), device, precision, batch_size)
