"""Reads lc0's network files (.pb.gz): residual towers and attention bodies with a WDL head.

The messages are those of lc0_schema.py; meaning of the layers: lc0 src/neural/network_legacy.cc,
lczero-training tf/net.py. `tensor_layout` maps each tensor of ours to its place in the file, for reading
and for writing.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch
from google.protobuf.message import DecodeError, Message

from alphazero.base.errors import WeightsError
from alphazero.base.text import reason
from alphazero.games.registry import GameSpec, get_spec
from alphazero.network.weights.lc0_attention import (
    EMBEDDING,
    FLAT,
    SQUARES,
    HeadPlaces,
    attention_config,
    attention_layout,
    attention_policy,
    places_of_heads,
    position_heads,
)
from alphazero.network.weights.lc0_layers import LayerPlace, conv_norm, layer_size, quotient, read_place
from alphazero.network.weights.lc0_schema import (
    MOVES_LEFT_V1,
    POLICY_HEADS,
    check_format,
    check_num_fields,
    is_attention_body,
    net_class,
)
from alphazero.network.weights.weights import Metadata, WeightsFile, config_of_table
from alphazero.settings.sections import NetworkConfig

MAGIC = 0x1C0  # lc0 src/neural/loader.cc kWeightMagic
MAX_FILE_BYTES = (1 << 31) - 1  # protobuf has no larger messages; BT4 takes 765 MB in fp32
# Weights hardly shrink (Maia's by a quarter): what grows more than this is a gzip bomb.
MAX_GZIP_RATIO = 20
MIN_UNPACKED_BYTES = 1 << 26
# lczero-training divides the rule50 plane by 99 and saves column 109 of the input for the raw count;
# our plane is count / 99 (tf/tfprocess.py replace_weights).
RULE50_PLANE = 109
RULE50_SCALE = 99.0


def read_lc0(path: Path) -> WeightsFile:
    """Read an lc0 network (.pb.gz or .pb). Raises WeightsError, one line, naming the file."""
    data = read_limited(path)
    try:
        return parse_lc0(data)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from None


def read_limited(path: Path) -> bytes:
    """The file's bytes, unpacked if gzip. Raises WeightsError."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise WeightsError(f"{path}: {size_bytes} bytes: expected at most {MAX_FILE_BYTES}")
        raw = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}") from None
    if raw[:2] != b"\x1f\x8b":
        return raw
    most = min(MAX_FILE_BYTES, max(MIN_UNPACKED_BYTES, MAX_GZIP_RATIO * len(raw)))
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(raw, most)
    except zlib.error as error:
        raise WeightsError(f"{path}: damaged gzip data ({error})") from None
    if not unpacker.eof:
        reason = "truncated" if len(data) < most else f"of over {most} bytes unpacked: no network is"
        raise WeightsError(f"{path}: gzip data {reason}")
    return data


def parse_lc0(data: bytes) -> WeightsFile:
    """An unpacked lc0 network file. Raises WeightsError without the file's name."""
    # fixed32 magic is the first field of every file lc0's tools write; checked before the rest is parsed.
    if data[:5] != b"\x0d" + MAGIC.to_bytes(4, "little"):
        raise WeightsError("no lc0 network: expected the magic number 0x1c0 at the start")
    check_num_fields(memoryview(data))
    try:
        net = net_class().FromString(data)
    except DecodeError as error:
        raise WeightsError(f"damaged or truncated: {reason(error)}; expected a protobuf message") from None
    check_format(net)
    config = config_of_table(attention_config(net) if is_attention_body(net) else tower_config(net))
    state_dict: dict[str, torch.Tensor] = {}
    for layer in tensor_layout(config, get_spec("chess"), places_of_heads(net.weights)):
        for key, values in read_place(net.weights, layer).items():
            state_dict[key] = torch.from_numpy(values)
        if layer.is_conv_norm:
            state_dict[f"{layer.prefix}.norm.num_batches_tracked"] = torch.tensor(0)
    state_dict[first_layer(config)][:, RULE50_PLANE] *= RULE50_SCALE
    return WeightsFile(config, state_dict, describe(net))


def tower_config(net: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf's own classes
    """The fields of NetworkConfig, from the sizes of the layers, not checked. Raises WeightsError."""
    weights, layout = net.weights, net.format.network_format
    blocks = weights.residual
    planes = get_spec("chess").num_planes
    filters = quotient(layer_size(weights.input, "weights"), 9 * planes, "filters of the input convolution")
    with_se = {block.HasField("se") for block in blocks}
    if len(with_se) > 1:
        raise WeightsError("squeeze-excitation in some blocks only: expected in all or none")
    config: dict[str, Any] = {
        "game": "chess",
        "blocks": len(blocks),
        "filters": filters,
        "policy_head": POLICY_HEADS[layout.policy],
        "moves_left": layout.moves_left == MOVES_LEFT_V1,
    }
    if with_se == {True}:
        config["se_ratio"] = quotient(filters, layer_size(blocks[0].se, "b1"), "filters by squeeze units")
    for head, name in (("value", "val"), ("moves_left", "mov")):
        if head == "value" or config["moves_left"]:
            hidden, inputs = layer_size(weights, f"ip1_{name}_b"), layer_size(weights, f"ip1_{name}_w")
            config[f"{head}_hidden"] = hidden
            what = f"channels of the {head.replace('_', '-')} head"
            config[f"{head}_channels"] = quotient(inputs, SQUARES * hidden, what)
    return config


def first_layer(config: NetworkConfig) -> str:
    """The tensor that multiplies the input planes, its second dimension."""
    return f"{EMBEDDING}.weight" if config.body == "attention" else "input.conv.weight"


def tensor_layout(config: NetworkConfig, spec: GameSpec, heads: HeadPlaces) -> list[LayerPlace]:
    """Every layer of AlphaZeroNet and where lc0's file has it. heads: of an attention body."""
    if config.body == "attention":
        return attention_layout(config, spec, heads)
    filters = config.filters
    places = [conv_norm("input", ("input",), (filters, spec.num_planes, 3, 3))]
    for index in range(config.blocks):
        block: tuple[str | int, ...] = ("residual", index)
        for name, field in (("first", "conv1"), ("second", "conv2")):
            prefix = f"blocks.{index}.{name}"
            places.append(conv_norm(prefix, (*block, field), (filters, filters, 3, 3)))
        if config.se_ratio:
            units, prefix, se = filters // config.se_ratio, f"blocks.{index}.se", (*block, "se")
            places.append(LayerPlace(f"{prefix}.squeeze", se, ("w1", "b1"), (units, filters)))
            places.append(LayerPlace(f"{prefix}.excite", se, ("w2", "b2"), (2 * filters, units)))
    if config.policy_head == "attention":
        places += attention_policy(config, FLAT)
    else:
        shape = (spec.policy_planes, filters, 3, 3)
        places.append(conv_norm("policy.hidden", ("policy1",), (filters, filters, 3, 3)))
        places.append(LayerPlace("policy.output", ("policy",), ("weights", "biases"), shape))
    return [*places, *position_heads(config, FLAT)]


def describe(net: Message) -> Metadata:
    """The metadata of the file: licence, training steps, accuracy, lc0 parameters."""
    training = net.training_params
    described: Metadata = {"source_format": "lc0"}
    for key, text in (("license", net.license), ("lc0_params", training.lc0_params)):
        if text:
            described[key] = text.decode("utf-8", errors="replace")
    if training.HasField("training_steps"):
        described["training_steps"] = training.training_steps
    return described
