"""Reads lc0's network files (.pb.gz): convolutional towers with the convolutional policy and WDL heads.

The messages are those of lc0_schema.py; meaning of the layers: lc0 src/neural/network_legacy.cc,
lczero-training tf/net.py. The table of `tensor_layout` says which tensor of ours lies where in the file, in
a form that serves writing as well.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from google.protobuf.message import DecodeError, Message
from torch import Tensor

from alphazero.config import NetworkConfig
from alphazero.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.games.spec import GameSpec
from alphazero.network.weights.lc0_schema import net_class
from alphazero.network.weights.protobuf_wire import check_wire

FloatArray = npt.NDArray[np.float32]

MAGIC = 0x1C0  # lc0 src/neural/loader.cc kWeightMagic
# The newest net.proto this reader was written for; lc0 refuses files that ask for a newer lc0 than itself.
NEWEST_VERSION = (0, 33, 0)
ANY_VERSION = (97, 98, 99)  # a mark that lc0's loader accepts whatever its own version is
MAX_FILE_BYTES = 1 << 30  # 40 blocks of 512 filters are 380 MB
# Weights hardly shrink (Maia's by a quarter): what grows more than this is a gzip bomb.
MAX_GZIP_RATIO = 20
MIN_UNPACKED_BYTES = 1 << 26
# lczero-training divides the rule50 plane by 99 and saves column 109 of the input for the raw count;
# our plane is count / 99 (tf/tfprocess.py replace_weights).
RULE50_PLANE = 109
RULE50_SCALE = 99.0

# Weights.Layer.Encoding (newer files of lc0; absent is LINEAR16)
LINEAR16, FLOAT16, BFLOAT16, FLOAT32 = 1, 2, 3, 4
ENCODING_DTYPES = {LINEAR16: "<u2", FLOAT16: "<f2", BFLOAT16: "<u2", FLOAT32: "<f4"}
# Fields of Weights that only attention networks have.
ATTENTION_FIELDS = ("encoder", "pol_encoder", "ip_emb_w", "ip2_pol_w")

INPUT_NAMES = {
    0: "unknown input",
    2: "input with castling planes (INPUT_112_WITH_CASTLING_PLANE)",
    3: "canonical input (INPUT_112_WITH_CANONICALIZATION)",
    4: "hectoplies input (INPUT_112_WITH_CANONICALIZATION_HECTOPLIES)",
    5: "canonical input V2 (INPUT_112_WITH_CANONICALIZATION_V2)",
    132: "armageddon input (INPUT_112_WITH_CANONICALIZATION_HECTOPLIES_ARMAGEDDON)",
    133: "armageddon input (INPUT_112_WITH_CANONICALIZATION_V2_ARMAGEDDON)",
}
NETWORK_NAMES = {
    0: "unknown structure",
    1: "classical policy head (fully connected)",
    2: "classical policy head (fully connected)",
    5: "ONNX network",
    6: "attention body",
    7: "attention body with several heads",
    134: "attention body with several heads",
}
POLICY_NAMES = {
    0: "unknown policy head",
    1: "classical policy head (fully connected)",
    3: "attention policy head",
}
VALUE_NAMES = {
    0: "unknown value head",
    1: "classical value head (one number, no WDL)",
    3: "parametric value head",
}
CONVOLUTIONAL_NETWORKS = (3, 4)  # NETWORK_CLASSICAL_WITH_HEADFORMAT, NETWORK_SE_WITH_HEADFORMAT


@dataclass(frozen=True)
class Lc0Network:
    """An lc0 network in our form: what AlphaZeroNet(config) loads, and what the file says of itself."""

    config: NetworkConfig
    state_dict: dict[str, Tensor]
    metadata: dict[str, str | int | float]


@dataclass(frozen=True)
class ConvNormPlace:
    """A ConvNorm of ours and the ConvBlock that holds it: `path` of field names, and indices if repeated."""

    prefix: str
    path: tuple[str | int, ...]
    shape: tuple[int, int, int, int]


@dataclass(frozen=True)
class LinearPlace:
    """A layer of ours with weight and bias: the message at `path` has them in two fields."""

    prefix: str
    path: tuple[str | int, ...]
    fields: tuple[str, str]
    shape: tuple[int, ...]


def read_lc0(path: Path) -> Lc0Network:
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


def parse_lc0(data: bytes) -> Lc0Network:
    """An unpacked lc0 network file. Raises WeightsError without the file's name."""
    # fixed32 magic is the first field of every file lc0's tools write; checked before the rest is parsed.
    if data[:5] != b"\x0d" + MAGIC.to_bytes(4, "little"):
        raise WeightsError("no lc0 network: expected the magic number 0x1c0 at the start")
    check_wire(memoryview(data))
    try:
        net = net_class().FromString(data)
    except DecodeError as error:
        raise WeightsError(f"not a protobuf message: {error}") from None
    check_format(net)
    weights = net.weights
    config = network_config(weights, net.format.network_format.moves_left == 1)
    spec = get_spec("chess")
    state_dict: dict[str, Tensor] = {}
    for place in tensor_layout(config, spec):
        for key, values in read_place(weights, place).items():
            state_dict[key] = torch.from_numpy(values)
        if isinstance(place, ConvNormPlace):
            state_dict[f"{place.prefix}.norm.num_batches_tracked"] = torch.tensor(0)
    state_dict["input.conv.weight"][:, RULE50_PLANE] *= RULE50_SCALE
    return Lc0Network(config, state_dict, describe(net))


def check_format(net: Message) -> None:
    """Refuse, by name of what it is, what our network cannot represent."""
    version = net.min_version
    needed = (version.major, version.minor, version.patch)
    if needed > NEWEST_VERSION and needed != ANY_VERSION:
        raise WeightsError(
            f"wants lc0 {'.'.join(map(str, needed))}: this reader knows {'.'.join(map(str, NEWEST_VERSION))}"
        )
    if net.HasField("onnx_model"):
        raise WeightsError("ONNX network: only lc0's own weights can be read")
    if net.format.weights_encoding != 1:
        raise WeightsError(f"weights encoding {net.format.weights_encoding}: expected 1 (LINEAR16)")
    layout = net.format.network_format
    # A file without the format message is the oldest kind (lc0 loader.cc FixOlderWeightsFile).
    structure = layout.network if layout.HasField("network") else 1
    input_format = layout.input if layout.HasField("input") else 1
    present = {field.name for field, _ in net.weights.ListFields()}
    refusals = [
        (structure not in CONVOLUTIONAL_NETWORKS, NETWORK_NAMES.get(structure, f"structure {structure}")),
        (not present.isdisjoint(ATTENTION_FIELDS), "attention body or policy head"),
        _refuse("input", input_format, 1, INPUT_NAMES),
        _refuse("policy head", layout.policy, 2, POLICY_NAMES),
        _refuse("value head", layout.value, 2, VALUE_NAMES),
        (layout.output != 2, f"output format {layout.output}"),
        (layout.moves_left > 1, f"moves-left head of kind {layout.moves_left}"),
        (layout.default_activation != 0, "Mish activations"),
    ]
    for refused, what in refusals:
        if refused:
            raise WeightsError(
                f"{what}: expected a convolutional tower with ReLU, the classical 112 input planes, a "
                "convolutional policy head and a WDL value head"
            )


def _refuse(kind: str, value: int, expected: int, names: dict[int, str]) -> tuple[bool, str]:
    return value != expected, names.get(value, f"{kind} of kind {value}")


def network_config(weights: Message, moves_left: bool) -> NetworkConfig:
    """The shape of the network, from the sizes of its layers. Raises WeightsError."""
    spec = get_spec("chess")
    squares = spec.board_height * spec.board_width
    blocks = weights.residual
    if not 1 <= len(blocks) <= _most("blocks"):
        raise WeightsError(f"{len(blocks)} residual blocks: expected 1 to {_most('blocks')}")
    filters = _quotient(
        layer_size(weights.input, "weights"), 9 * spec.num_planes, "filters of the input convolution"
    )
    if filters > _most("filters"):
        raise WeightsError(f"{filters} filters: expected 1 to {_most('filters')}")
    with_se = {block.HasField("se") for block in blocks}
    if len(with_se) != 1:
        raise WeightsError("squeeze-excitation in some blocks only: expected in all or none")
    se_ratio = 0
    if with_se == {True}:
        units = layer_size(blocks[0].se, "b1")
        if units == 0 or filters % units:
            raise WeightsError(f"{units} squeeze units: expected a divisor of the {filters} filters")
        se_ratio = filters // units
    value_hidden = layer_size(weights, "ip1_val_b")
    moves_left_hidden = layer_size(weights, "ip1_mov_b") if moves_left else 1
    value_inputs = layer_size(weights, "ip1_val_w")
    moves_left_inputs = layer_size(weights, "ip1_mov_w")
    default = NetworkConfig()
    return NetworkConfig(
        game="chess",
        blocks=len(blocks),
        filters=filters,
        se_ratio=se_ratio,
        value_channels=_quotient(value_inputs, squares * value_hidden, "channels of the value head"),
        value_hidden=value_hidden,
        moves_left=moves_left,
        moves_left_channels=_quotient(
            moves_left_inputs, squares * moves_left_hidden, "channels of the moves-left head"
        )
        if moves_left
        else default.moves_left_channels,
        moves_left_hidden=moves_left_hidden if moves_left else default.moves_left_hidden,
    )


def _most(name: str) -> int:
    """The largest value of a setting of the network."""
    return int(NetworkConfig.__dataclass_fields__[name].metadata["maximum"])


def _quotient(size: int, divisor: int, what: str) -> int:
    if size == 0 or divisor == 0 or size % divisor:
        raise WeightsError(f"{what}: {size} weights, expected a positive multiple of {divisor}")
    return size // divisor


def tensor_layout(config: NetworkConfig, spec: GameSpec) -> list[ConvNormPlace | LinearPlace]:
    """Every layer of AlphaZeroNet and where lc0's file has it."""
    squares = spec.board_height * spec.board_width
    filters = config.filters
    places: list[ConvNormPlace | LinearPlace] = [
        ConvNormPlace("input", ("input",), (filters, spec.num_planes, 3, 3))
    ]
    for index in range(config.blocks):
        block: tuple[str | int, ...] = ("residual", index)
        for name, field in (("first", "conv1"), ("second", "conv2")):
            prefix = f"blocks.{index}.{name}"
            places.append(ConvNormPlace(prefix, (*block, field), (filters, filters, 3, 3)))
        if config.se_ratio:
            units, prefix, se = filters // config.se_ratio, f"blocks.{index}.se", (*block, "se")
            places.append(LinearPlace(f"{prefix}.squeeze", se, ("w1", "b1"), (units, filters)))
            places.append(LinearPlace(f"{prefix}.excite", se, ("w2", "b2"), (2 * filters, units)))
    places.append(ConvNormPlace("policy.hidden", ("policy1",), (filters, filters, 3, 3)))
    output_shape = (spec.policy_planes, filters, 3, 3)
    places.append(LinearPlace("policy.output", ("policy",), ("weights", "biases"), output_shape))
    channels, hidden = config.value_channels, config.value_hidden
    places.append(ConvNormPlace("value.reduce", ("value",), (channels, filters, 1, 1)))
    places.append(LinearPlace("value.hidden", (), ("ip1_val_w", "ip1_val_b"), (hidden, channels * squares)))
    places.append(LinearPlace("value.output", (), ("ip2_val_w", "ip2_val_b"), (3, hidden)))
    if config.moves_left:
        channels, hidden = config.moves_left_channels, config.moves_left_hidden
        places.append(ConvNormPlace("moves_left.reduce", ("moves_left",), (channels, filters, 1, 1)))
        places.append(
            LinearPlace("moves_left.hidden", (), ("ip1_mov_w", "ip1_mov_b"), (hidden, channels * squares))
        )
        places.append(LinearPlace("moves_left.output", (), ("ip2_mov_w", "ip2_mov_b"), (1, hidden)))
    return places


def read_place(weights: Message, place: ConvNormPlace | LinearPlace) -> dict[str, FloatArray]:
    """The arrays of one layer by state-dict key. Raises WeightsError."""
    message: Any = weights
    for step in place.path:
        if isinstance(step, int):
            message = message[step]  # network_config counted the blocks
        elif step != "residual" and not message.HasField(step):
            raise WeightsError(f"{place.prefix}: layer missing from the file")
        else:
            message = getattr(message, step)
    if isinstance(place, ConvNormPlace):
        return read_conv_norm(message, place)
    weight, bias = (layer_values(message, field, place.prefix) for field in place.fields)
    if place.prefix == "policy.output":
        # lc0's tools save 80 planes and use the first ones.
        per_plane = math.prod(place.shape[1:])
        if len(weight) != len(bias) * per_plane:
            raise WeightsError(f"{place.prefix}: {len(weight)} weights for {len(bias)} planes")
        weight, bias = weight[: math.prod(place.shape)], bias[: place.shape[0]]
    return {
        f"{place.prefix}.weight": shaped(weight, place.shape, f"{place.prefix}.weight"),
        f"{place.prefix}.bias": shaped(bias, place.shape[:1], f"{place.prefix}.bias"),
    }


def read_conv_norm(block: Message, place: ConvNormPlace) -> dict[str, FloatArray]:
    """The arrays of a ConvBlock. Raises WeightsError.

    Old files have a bias in place of beta and no gamma: norm(x + bias) is the norm with the mean less
    the bias (lc0 src/neural/network_legacy.cc, ConvBlock).
    """
    prefix, channels = place.prefix, place.shape[:1]

    def read(field: str, default: float) -> FloatArray:
        if not getattr(block, field).params:
            return np.full(channels, default, np.float32)
        return shaped(layer_values(block, field, f"{prefix}.{field}"), channels, f"{prefix}.{field}")

    weight = layer_values(block, "weights", f"{prefix}.conv")
    for field in ("bn_means", "bn_stddivs"):
        if not block.HasField(field):
            raise WeightsError(f"{prefix}: no {field}, expected BatchNorm after the convolution")
    # Named for deviations, but it holds variances.
    variance = read("bn_stddivs", 1.0)
    if variance.min() <= 0:
        raise WeightsError(f"{prefix}.bn_stddivs: {variance.min()}: expected variances above 0")
    return {
        f"{prefix}.conv.weight": shaped(weight, place.shape, f"{prefix}.conv"),
        f"{prefix}.norm.weight": read("bn_gammas", 1.0),
        f"{prefix}.norm.bias": read("bn_betas", 0.0),
        f"{prefix}.norm.running_mean": read("bn_means", 0.0) - read("biases", 0.0),
        f"{prefix}.norm.running_var": variance,
    }


def shaped(values: FloatArray, shape: tuple[int, ...], name: str) -> FloatArray:
    """The values in `shape`. Raises WeightsError when there are more or fewer."""
    if len(values) != math.prod(shape):
        raise WeightsError(
            f"{name}: {len(values)} numbers, expected {math.prod(shape)} for shape {list(shape)}"
        )
    return values.reshape(shape)


def layer_size(message: Message, field: str) -> int:
    """How many numbers the Layer in `field` of a message holds. Raises WeightsError."""
    layer = getattr(message, field)
    return len(layer.params) // layer_dtype(layer, field).itemsize


def layer_encoding(layer: Message) -> int:
    """The number of the encoding of a Layer."""
    return int(layer.encoding) if layer.HasField("encoding") else LINEAR16


def layer_dtype(layer: Message, name: str) -> np.dtype[Any]:
    """How the numbers of a Layer are stored. Raises WeightsError."""
    encoding = layer_encoding(layer)
    if encoding not in ENCODING_DTYPES:
        raise WeightsError(f"{name}: encoding {encoding}: expected one of {list(ENCODING_DTYPES)}")
    return np.dtype(ENCODING_DTYPES[encoding])


def layer_values(message: Message, field: str, name: str) -> FloatArray:
    """The numbers of the Layer in `field` of a message, flat float32. Raises WeightsError."""
    layer = getattr(message, field)
    params, dtype, encoding = layer.params, layer_dtype(layer, name), layer_encoding(layer)
    if len(params) % dtype.itemsize:
        raise WeightsError(f"{name}: {len(params)} bytes, expected a multiple of {dtype.itemsize}")
    raw = np.frombuffer(params, dtype)
    values: FloatArray
    if encoding == LINEAR16:
        low, high = layer.min_val, layer.max_val
        if not (math.isfinite(low) and math.isfinite(high)):
            raise WeightsError(f"{name}: from {low} to {high}: holds numbers that are not finite")
        with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
            values = (low + raw.astype(np.float64) * ((high - low) / 0xFFFF)).astype(np.float32)
    elif encoding == BFLOAT16:
        values = (raw.astype(np.uint32) << 16).view(np.float32)
    else:
        values = raw.astype(np.float32)
    if not np.isfinite(values).all():
        raise WeightsError(f"{name}: holds numbers that are not finite")
    return values


def describe(net: Message) -> dict[str, str | int | float]:
    """What the file says of itself: licence, training steps, accuracy, lc0 parameters."""
    training = net.training_params
    described: dict[str, str | int | float] = {"source_format": "lc0"}
    for key, text in (("license", net.license), ("lc0_params", training.lc0_params)):
        if text:
            described[key] = text.decode("utf-8", errors="replace")
    if training.HasField("training_steps"):
        described["training_steps"] = training.training_steps
    return described
