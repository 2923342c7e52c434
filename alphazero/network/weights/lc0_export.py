"""Writes lc0's network files (.pb.gz) from our weights: what lc0 evaluates as we do.

The layers are those of `lc0_weights.tensor_layout`; the encoding is LINEAR16, the only one that every
version of lc0 since 0.21 reads (lc0 src/neural/loader.cc). BatchNorm is written as it is, not folded into
the convolutions, which would double the rounding error.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from alphazero.base.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.network.weights.lc0_attention import (
    ACTIVATION_NUMBERS,
    DEFAULT_ACTIVATIONS,
    NAMED,
    places_to_write,
)
from alphazero.network.weights.lc0_layers import FloatArray, LayerPlace, message_at
from alphazero.network.weights.lc0_schema import (
    ATTENTION_BODY,
    ATTENTION_BODY_WITH_HEADS,
    EMBEDDING_DENSE,
    EMBEDDING_MAP,
    INPUT_CLASSICAL_112,
    LINEAR16,
    MOVES_LEFT_V1,
    OUTPUT_WDL,
    POLICY_NUMBERS,
    TOWER_WITH_SE,
    TOWER_WITHOUT_SE,
    VALUE_WDL,
    net_class,
)
from alphazero.network.weights.lc0_weights import (
    MAGIC,
    MAX_FILE_BYTES,
    RULE50_PLANE,
    RULE50_SCALE,
    first_layer,
    tensor_layout,
)
from alphazero.network.weights.weights import write_whole
from alphazero.settings.sections import NetworkConfig

# Sizes that lc0's backends take for granted (src/neural/onnx/converter.cc).
POLICY_PLANES = 80
FIXED_SIZES = {"value_channels": 32, "value_hidden": 128}
NUMBER_BYTES = 2  # of LINEAR16
SPARE_BYTES = 1 << 20  # above the names and ranges of all layers
STEPS = 0xFFFF  # of LINEAR16, from the smallest number of a layer to the largest


def write_lc0(
    path: Path, config: NetworkConfig, state_dict: dict[str, Tensor], training_steps: int, text: str = ""
) -> None:
    """Write `path` (.pb.gz, or .pb uncompressed), whole or not at all.

    state_dict: of AlphaZeroNet(config), fp32. text: the licence, which lc0 shows. Raises WeightsError, naming
    what lc0 has no form for.
    """
    data = to_lc0(config, state_dict, training_steps, text)
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=9, mtime=0)  # the same network, the same bytes
    write_whole(path, data)


def to_lc0(config: NetworkConfig, state_dict: dict[str, Tensor], training_steps: int, text: str) -> bytes:
    """The file's bytes, uncompressed. Raises WeightsError without the file's name."""
    check_exportable(config)
    numbers = sum(tensor.numel() for tensor in state_dict.values())
    if NUMBER_BYTES * numbers + SPARE_BYTES > MAX_FILE_BYTES:
        raise WeightsError(
            f"a network of {numbers:,} numbers: lc0's files have {NUMBER_BYTES} bytes for each and are at "
            f"most {MAX_FILE_BYTES:,} bytes long, protobuf's limit; expected --to safetensors or pt"
        )
    net = net_class()(magic=MAGIC, license=text.encode())
    version = net.min_version
    version.major, version.minor, version.patch = min_version(config)
    net.format.weights_encoding = LINEAR16
    layout = net.format.network_format
    layout.input, layout.output = INPUT_CLASSICAL_112, OUTPUT_WDL
    layout.network = TOWER_WITH_SE if config.se_ratio else TOWER_WITHOUT_SE
    layout.policy, layout.value = POLICY_NUMBERS[config.policy_head], VALUE_WDL
    if config.moves_left:
        layout.moves_left = MOVES_LEFT_V1
    net.training_params.training_steps = training_steps
    if config.body == "attention":
        has_named_heads = places_to_write(config) is NAMED
        layout.network = ATTENTION_BODY_WITH_HEADS if has_named_heads else ATTENTION_BODY
        layout.input_embedding = EMBEDDING_DENSE if config.embedding == "dense" else EMBEDDING_MAP
        layout.default_activation = DEFAULT_ACTIVATIONS.index(config.activation)
        layout.ffn_activation = ACTIVATION_NUMBERS[config.ffn_activation]
        layout.smolgen_activation = ACTIVATION_NUMBERS[config.smolgen_activation]
        net.weights.headcount = config.heads
    blocks = net.weights.encoder if config.body == "attention" else net.weights.residual
    for _ in range(config.blocks):
        blocks.add()
    weight = state_dict[first_layer(config)].clone()
    weight[:, RULE50_PLANE] /= RULE50_SCALE  # lc0 feeds the count of plies, we a share of 99
    state_dict = {**state_dict, first_layer(config): weight}
    for layer in tensor_layout(config, get_spec(config.game), places_to_write(config)):
        _write_place(message_at(net.weights, layer.path), layer, state_dict)
    return bytes(net.SerializeToString(deterministic=True))


def min_version(config: NetworkConfig) -> tuple[int, int, int]:
    """The first lc0 that evaluates such a network.

    0.21 reads the format message, 0.29 the attention policy head (0.28 refuses it, but lczero-training still
    requires 0.21 there), 0.30 attention bodies, 0.31 heads by name and the dense embedding.
    """
    if config.body == "attention":
        return (0, 31, 0) if places_to_write(config) is NAMED else (0, 30, 0)
    return (0, 29, 0) if config.policy_head == "attention" else (0, 21, 0)


def check_exportable(config: NetworkConfig) -> None:
    """Raise WeightsError, by name, for a network that lc0 cannot evaluate as we do."""
    if config.game != "chess":
        raise WeightsError(f"a network of {config.game}: expected chess, which is all that lc0 plays")
    if config.body == "attention":
        return
    for name, size in FIXED_SIZES.items():
        if getattr(config, name) != size:
            raise WeightsError(f"network {name} = {getattr(config, name)}: expected {size}, as lc0 has it")


def _write_place(message: Any, layer: LayerPlace, state_dict: dict[str, Tensor]) -> None:  # noqa: ANN401
    """All tensors; the policy's planes are filled up with zeros to the number that lc0 expects."""
    arrays = [state_dict[key].detach().numpy() for key in layer.keys]
    if layer.prefix == "policy.output":
        missing = POLICY_PLANES - len(arrays[1])
        arrays = [np.concatenate([a, np.zeros((missing, *a.shape[1:]), np.float32)]) for a in arrays]
    for field, array in zip(layer.fields, arrays, strict=True):
        _write_layer(getattr(message, field), array)


def _write_layer(layer: Any, values: FloatArray) -> None:  # noqa: ANN401
    """LINEAR16: each number as its place, in 65,535 steps, between the smallest and the largest."""
    low, high = float(values.min()), float(values.max())
    layer.min_val, layer.max_val = low, high
    steps = np.zeros(values.size, np.float64)
    if high > low:
        steps = (values.reshape(-1).astype(np.float64) - low) * (STEPS / (high - low))
    layer.params = np.rint(steps).astype("<u2").tobytes()
