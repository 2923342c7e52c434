"""Networks of one block, untrained, each of its seed."""

from pathlib import Path

import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import WeightsFile, write_weights
from alphazero.settings.sections import NetworkConfig


def write_small_net(path: Path, game: str, seed: int = 0) -> str:
    """The file's name, for the command line."""
    config = NetworkConfig(game=game, blocks=1, filters=8)
    network = AlphaZeroNet(config, get_spec(game), torch.Generator().manual_seed(seed))
    write_weights(path, WeightsFile(config, network.state_dict(), {}))
    return str(path)
