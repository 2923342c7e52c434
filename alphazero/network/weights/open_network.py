"""What `--weights` may name, opened: a weights file, a run, one of its checkpoints, or an lc0 network."""

from __future__ import annotations

from pathlib import Path

import torch

from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import load_weights
from alphazero.network.weights.weights import (
    Metadata,
    WeightsFile,
    build_network,
    check_state_dict,
    network_config_of,
    read_weights,
)
from alphazero.run.checkpoint_files import STATE
from alphazero.run.find import find_weights, is_checkpoint


def open_network(name: str, device: torch.device, flag: str = "--weights") -> tuple[AlphaZeroNet, Metadata]:
    """The network that `name` means, in eval mode on `device`, and what its file says of it.

    Of a checkpoint these are the averaged weights where it has some. Raises WeightsError and CheckpointError.
    """
    weights = open_weights(name, flag)
    return build_network(Path(name), weights).to(device).eval(), weights.metadata


def open_weights(name: str, flag: str = "--weights") -> WeightsFile:
    """The weights that `name` means, on the CPU. Raises WeightsError and CheckpointError."""
    path = find_weights(name, flag)
    return weights_of_checkpoint(path) if is_checkpoint(path) else read_weights(path)


def weights_of_checkpoint(path: Path) -> WeightsFile:
    """The weights of a complete checkpoint as it plays: averaged where it has averages."""
    state, tensors, averaged = load_weights(path)
    network = state.config.get("network")
    config = network_config_of(path / STATE, network)
    metadata: Metadata = {"step": state.step, "run": path.absolute().parent.parent.name, "averaged": averaged}
    return WeightsFile(config, check_state_dict(path, tensors), metadata)
