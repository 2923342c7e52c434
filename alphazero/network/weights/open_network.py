"""Opens what `--weights` may name: a weights file of ours or of lc0, a run, or one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch

from alphazero.base.errors import WeightsError
from alphazero.base.files import open_regular
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import load_weights
from alphazero.network.weights.lc0_weights import MAGIC as LC0_MAGIC
from alphazero.network.weights.lc0_weights import read_lc0
from alphazero.network.weights.weights import (
    Metadata,
    WeightsFile,
    check_state_dict,
    check_tensors,
    network_config_of,
    network_of,
    read_pt,
    read_safetensors,
)
from alphazero.run.checkpoint_files import STATE
from alphazero.run.find import NETWORK, find_weights, is_checkpoint


def open_network(
    name: str | Path, device: torch.device, flag: str = NETWORK
) -> tuple[AlphaZeroNet, Metadata]:
    """The network that `name` refers to, in eval mode on `device`, and the metadata of its file.

    A checkpoint gives its averaged weights if it has any. Raises WeightsError and CheckpointError.
    """
    weights = open_weights(name, flag)
    return network_of(weights.config, weights.state_dict).to(device), weights.metadata


def open_weights(name: str | Path, flag: str = NETWORK) -> WeightsFile:
    """The weights that `name` refers to, checked, on the CPU. Raises WeightsError and CheckpointError."""
    path = find_weights(str(name), flag)
    weights = weights_of_checkpoint(path) if is_checkpoint(path) else read_weights(path)
    check_tensors(path, weights)
    return weights


def weights_of_checkpoint(path: Path) -> WeightsFile:
    """The weights with which a complete checkpoint plays: the averaged ones if it has any."""
    state, tensors, averaged = load_weights(path)
    config = network_config_of(path / STATE, state.config.get("network"))
    metadata: Metadata = {"step": state.step, "run": path.absolute().parent.parent.name, "averaged": averaged}
    return WeightsFile(config, check_state_dict(path, tensors), metadata)


def read_weights(path: Path) -> WeightsFile:
    """Read a weights file, whose format its content shows. Raises WeightsError, one line, for any fault."""
    try:
        with open_regular(path) as handle:
            start = handle.read(9)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}") from None
    if start[:2] == b"\x1f\x8b" or start[:5] == b"\x0d" + LC0_MAGIC.to_bytes(4, "little"):
        return read_lc0(path)
    if start[:4] == b"PK\x03\x04":
        return read_pt(path)
    if start[8:9] == b"{":
        return read_safetensors(path)
    raise WeightsError(f"{path}: no weights file (.pt or .safetensors of alphazero, .pb.gz of lc0)")
