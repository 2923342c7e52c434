"""The network that a stretch of training begins with."""

from __future__ import annotations

import torch

from alphazero.config import NetworkConfig
from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.training.checkpoint.checkpoint import Checkpoint


def build_network(config: NetworkConfig, seed: int, resumed: Checkpoint | None) -> AlphaZeroNet:
    """The network with its first weights, or those of the checkpoint; the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    network = AlphaZeroNet(config, get_spec(config.game), generator)
    if resumed:
        network.load_state_dict(resumed.weights)
    return network
