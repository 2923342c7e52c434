"""Our weights files, .pt and .safetensors: written, read and checked; open_network.py opens any file.

Both of ours hold the network's shape, its tensors (fp32) and metadata. A .pt is a plain dict that
`torch.load(path, weights_only=True)` reads: magic, version, network, state_dict, metadata. A
.safetensors has magic, version, network and metadata as JSON in its header.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from alphazero.base.errors import ConfigError, WeightsError
from alphazero.base.files import replacing
from alphazero.base.section import checked, kinds_of
from alphazero.base.text import reason, shortened
from alphazero.games.registry import get_spec, known_game
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checks import (
    safetensors_header_fault,
    shown,
    values_fault,
)
from alphazero.network.weights.pt_file import read_pt_content
from alphazero.settings.sections import NetworkConfig

MAGIC = "alphazero-weights"
VERSION = 1

Metadata = dict[str, str | int | float | bool | None]


@dataclasses.dataclass(frozen=True)
class WeightsFile:
    """What a weights file holds, on the CPU: shape of the network, its state dict, metadata."""

    config: NetworkConfig
    state_dict: dict[str, Tensor]
    metadata: Metadata


def weights_file_name(config: NetworkConfig, metric: str = "") -> str:
    """Name of a run's newest weights, or of its best by one figure of its validations."""
    which = f"best-{metric}" if metric else "distributed"
    return f"AlphaZeroNet_{config.blocks}x{config.filters}_{which}.pt"


def save_weights(path: Path, network: AlphaZeroNet, metadata: Metadata) -> None:
    """Write the network's weights to `path` (.pt or .safetensors), whole or not at all."""
    write_weights(path, WeightsFile(network.config, network.state_dict(), metadata))


def write_weights(path: Path, weights: WeightsFile) -> None:
    """Write weights that need not be in a module (gathered over ranks). Raises WeightsError."""
    # A tensor may be a view of a flat buffer or lie channels-last: a fresh contiguous copy is neither.
    state_dict = {}
    for key, value in weights.state_dict.items():
        dtype = torch.float32 if value.is_floating_point() else value.dtype
        copy = value.detach().to("cpu", dtype).clone(memory_format=torch.contiguous_format)
        state_dict[key] = copy
    header = {"magic": MAGIC, "version": VERSION, "network": dataclasses.asdict(weights.config)}
    if path.suffix not in (".pt", ".safetensors"):
        raise WeightsError(f"{path}: weights are written to .pt or .safetensors")
    if path.suffix == ".pt":
        # By way of memory, as below: torch does not say what fault a disk has.
        buffer = io.BytesIO()
        torch.save({**header, "state_dict": state_dict, "metadata": weights.metadata}, buffer)
        write_whole(path, buffer.getbuffer())
    else:
        text = json.dumps({**header, "metadata": weights.metadata})
        write_whole(path, safetensors.torch.save(state_dict, {"alphazero": text}))


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file, whole or not at all. Raises WeightsError."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_pt(path: Path) -> WeightsFile:
    """Read our .pt; nothing in it is executed. Raises WeightsError."""
    content = read_pt_content(path)
    if not isinstance(content, dict):
        raise WeightsError(f"{path}: holds a {type(content).__name__}, expected alphazero weights")
    header = check_header(path, content)
    state_dict = check_state_dict(path, content.get("state_dict"))
    return WeightsFile(header, state_dict, check_metadata(path, content))


def read_safetensors(path: Path) -> WeightsFile:
    """Read our .safetensors. Raises WeightsError."""
    try:
        if fault := safetensors_header_fault(path):
            raise WeightsError(f"{path}: damaged or truncated: {fault}")
        with safetensors.safe_open(path, framework="pt", device="cpu") as handle:
            text = (handle.metadata() or {}).get("alphazero", "{}")
            # Copies: the library's tensors are views of the file, which another process may cut short.
            state_dict = {key: handle.get_tensor(key).clone() for key in handle.keys()}  # noqa: SIM118
        content = json.loads(text)
    except (OSError, ValueError, RecursionError, RuntimeError, safetensors.SafetensorError) as error:
        raise WeightsError(f"{path}: damaged or truncated: {reason(error)}") from None
    if not isinstance(content, dict):
        raise WeightsError(f"{path}: header holds a {type(content).__name__}, expected a JSON object")
    header = check_header(path, content)
    return WeightsFile(header, check_state_dict(path, state_dict), check_metadata(path, content))


def check_header(path: Path, content: Mapping[str, Any]) -> NetworkConfig:
    """Check magic and version; the network's shape. Raises WeightsError."""
    if content.get("magic") != MAGIC:
        raise WeightsError(
            f"{path}: magic {shown(content.get('magic'))}: expected {MAGIC!r}, written by alphazero"
        )
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise WeightsError(f"{path}: version {shown(version)}: this program reads {VERSION}")
    return network_config_of(path, content.get("network"))


def network_config_of(path: Path, network: object) -> NetworkConfig:
    """The shape of a network from a table of its settings that a file holds. Raises WeightsError."""
    if not isinstance(network, dict):
        raise WeightsError(f"{path}: network {shown(network)}: expected the network's shape")
    try:
        return config_of_table(network)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from None


def config_of_table(network: Mapping[Any, object]) -> NetworkConfig:
    """The same without the file's name."""
    fields, kinds = NetworkConfig.__dataclass_fields__, kinds_of(NetworkConfig)
    values: dict[str, Any] = {}
    for name, value in network.items():
        if name not in fields:
            raise WeightsError(f"network.{shortened(str(name))}: no such setting in this version")
        field = fields[name]
        if type(value) is not type(field.default):
            raise WeightsError(f"network.{name} {shown(value)}: expected {type(field.default).__name__}")
        try:
            # A game is known, not read: the user names files with rules, a weights file does not.
            is_game = field.metadata["reads"]
            values[name] = known_game(str(value)) if is_game else checked(name, value, kinds[name], field)
        except ConfigError as error:
            raise WeightsError(f"network.{error}") from None
    return NetworkConfig(**values)


def check_state_dict(path: Path, state_dict: object) -> dict[str, Tensor]:
    """The tensors by name: plain, fp32 or int64, finite, variances above 0. Raises WeightsError."""
    if not isinstance(state_dict, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state_dict.items()
    ):
        raise WeightsError(f"{path}: state_dict: expected tensors by name")
    if fault := values_fault(state_dict):
        raise WeightsError(f"{path}: {fault}")
    return state_dict


def check_metadata(path: Path, content: Mapping[str, Any]) -> Metadata:
    """The metadata: plain values by name. Raises WeightsError."""
    metadata = content.get("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(name, str) and isinstance(value, str | int | float | None)
        for name, value in metadata.items()
    ):
        raise WeightsError(f"{path}: metadata {shown(metadata)}: expected plain values by name")
    return metadata


def check_tensors(path: Path, weights: WeightsFile) -> None:
    """Raise WeightsError unless the tensors are those of the network that the file announces."""
    # Without memory: a file may announce a network larger than this machine.
    with torch.device("meta"):
        try:
            network = AlphaZeroNet(weights.config, get_spec(weights.config.game))
        except ConfigError as error:
            raise WeightsError(f"{path}: {error}") from None
    expected: dict[str, Tensor] = network.state_dict()
    for key in [*expected, *weights.state_dict]:
        if key not in weights.state_dict:
            raise WeightsError(f"{path}: {key}: missing")
        if key not in expected:
            raise WeightsError(f"{path}: {shortened(key)}: not part of this network")
        got, own = weights.state_dict[key], expected[key]
        if got.shape != own.shape:
            raise WeightsError(f"{path}: {key}: shape {list(got.shape)}, expected {list(own.shape)}")
        if got.dtype != own.dtype:
            raise WeightsError(f"{path}: {key}: {got.dtype}, expected {own.dtype}")


def network_of(config: NetworkConfig, tensors: Mapping[str, Tensor]) -> AlphaZeroNet:
    """A network in eval mode whose weights are these tensors themselves, not copies."""
    with torch.device("meta"):
        network = AlphaZeroNet(config, get_spec(config.game))
    network.adopt(tensors)
    return network.eval()
