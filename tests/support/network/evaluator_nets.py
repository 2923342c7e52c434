"""Networks and positions for the tests of the evaluator."""

import numpy as np
import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig


def trained_like(game: str, seed: int = 4, **shape: int | bool | str) -> AlphaZeroNet:
    """A network whose BatchNorms hold statistics and factors of their own, and whose biases are not 0."""
    generator = torch.Generator().manual_seed(seed)
    settings = {"blocks": 2, "filters": 16, "se_ratio": 4, "value_hidden": 8, **shape}
    network = AlphaZeroNet(NetworkConfig(game=game, **settings), get_spec(game), generator)
    for name, tensor in network.state_dict().items():
        if "norm" in name and tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
        elif name.endswith("bias"):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
    return network.train()


@torch.no_grad()
def calibrate(network: AlphaZeroNet, packed: np.ndarray) -> None:
    """Give the BatchNorms the statistics of these positions, so that no output is saturated."""
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    network.train()(expand_planes(torch.from_numpy(packed), network.spec).contiguous())


def positions(game: str, count: int, seed: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random packed bytes with one to four legal moves each."""
    spec, generator = get_spec(game), np.random.default_rng(seed)
    packed = generator.integers(0, 256, (count, spec.packed_bytes), dtype=np.uint8)
    moves = [
        np.sort(generator.choice(spec.policy_size, generator.integers(1, 5), replace=False)).astype(np.int32)
        for _ in range(count)
    ]
    return packed, np.concatenate(moves), np.cumsum([0, *map(len, moves)], dtype=np.int32)


def chosen(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray], numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positions of these numbers, in this order, with their moves."""
    packed, legal_index, legal_offset = arrays
    moves = [legal_index[legal_offset[number] : legal_offset[number + 1]] for number in numbers]
    return packed[numbers], np.concatenate(moves), np.cumsum([0, *map(len, moves)], dtype=np.int32)
