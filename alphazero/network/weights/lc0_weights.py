"""Reads lc0's network files (.pb.gz): convolutional towers with the convolutional policy and WDL heads.

Field numbers and formats: net.proto of LeelaChessZero/lczero-common; meaning of the layers: lc0
src/neural/network_legacy.cc, lczero-training tf/net.py. The table of `tensor_layout` says which tensor
of ours lies where in the file, in a form that serves writing as well.
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
from torch import Tensor

from alphazero.config import NetworkConfig
from alphazero.errors import WeightsError
from alphazero.games.registry import get_spec
from alphazero.games.spec import GameSpec
from alphazero.network.weights.protobuf_wire import Message

FloatArray = npt.NDArray[np.float32]

MAGIC = 0x1C0  # lc0 src/neural/loader.cc kWeightMagic
# The newest net.proto this reader was written for; lc0 refuses files that ask for a newer lc0 than itself.
NEWEST_VERSION = (0, 33, 0)
ANY_VERSION = (97, 98, 99)  # a mark that lc0's loader accepts whatever its own version is
MAX_FILE_BYTES = 1 << 31  # protobuf's own limit; a gzip bomb ends here
# lczero-training divides the rule50 plane by 99 and saves column 109 of the input for the raw count;
# our plane is count / 99 (tf/tfprocess.py replace_weights).
RULE50_PLANE = 109
RULE50_SCALE = 99.0

# Weights
INPUT, RESIDUAL, POLICY, VALUE, POLICY1, MOVES_LEFT = 1, 2, 3, 6, 11, 12
IP1_VAL_W, IP1_VAL_B, IP2_VAL_W, IP2_VAL_B = 7, 8, 9, 10
IP1_MOV_W, IP1_MOV_B, IP2_MOV_W, IP2_MOV_B = 13, 14, 15, 16
# Weights.ConvBlock
WEIGHTS, BIASES, BN_MEANS, BN_VARIANCES, BN_GAMMAS, BN_BETAS = 1, 2, 3, 4, 5, 6  # 4 is named bn_stddivs
# Weights.Residual and Weights.SEunit
CONV1, CONV2, SE = 1, 2, 3
SE_W1, SE_B1, SE_W2, SE_B2 = 1, 2, 3, 4
# Weights.Layer and Weights.Layer.Encoding (newer files of lc0; absent is LINEAR16)
MIN_VAL, MAX_VAL, PARAMS, ENCODING = 1, 2, 3, 4
LINEAR16, FLOAT16, BFLOAT16, FLOAT32 = 1, 2, 3, 4
ENCODING_DTYPES = {LINEAR16: "<u2", FLOAT16: "<f2", BFLOAT16: "<u2", FLOAT32: "<f4"}
# Fields of Weights that only attention networks have: encoder, pol_encoder, ip_emb_w, ip2_pol_w.
ATTENTION_FIELDS = (27, 21, 25, 17)

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
    """A ConvNorm of ours and the ConvBlock that holds it: `path` of (field number, index if repeated)."""

    prefix: str
    path: tuple[tuple[int, int], ...]
    shape: tuple[int, int, int, int]


@dataclass(frozen=True)
class LinearPlace:
    """A layer of ours with weight and bias: the message at `path` has them in two fields."""

    prefix: str
    path: tuple[tuple[int, int], ...]
    fields: tuple[int, int]
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
        raw = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror}") from None
    if raw[:2] != b"\x1f\x8b":
        return raw
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(raw, MAX_FILE_BYTES)
    except zlib.error as error:
        raise WeightsError(f"{path}: damaged gzip data ({error})") from None
    if not unpacker.eof:
        reason = "truncated" if len(data) < MAX_FILE_BYTES else f"over {MAX_FILE_BYTES} bytes"
        raise WeightsError(f"{path}: gzip data {reason}")
    return data


def parse_lc0(data: bytes) -> Lc0Network:
    """An unpacked lc0 network file. Raises WeightsError without the file's name."""
    # fixed32 magic is the first field of every file lc0's tools write; checked before the rest is parsed.
    if data[:5] != b"\x0d" + MAGIC.to_bytes(4, "little"):
        raise WeightsError("no lc0 network: expected the magic number 0x1c0 at the start")
    net = Message(memoryview(data), "Net")
    check_format(net)
    weights = net.message(10, "weights")
    config = network_config(weights, net.message(4, "format").message(2, "network_format").integer(6) == 1)
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
    version = net.message(3, "min_version")
    wanted = (version.integer(1), version.integer(2), version.integer(3))
    if wanted > NEWEST_VERSION and wanted != ANY_VERSION:
        raise WeightsError(
            f"wants lc0 {'.'.join(map(str, wanted))}: this reader knows {'.'.join(map(str, NEWEST_VERSION))}"
        )
    if net.has(11):
        raise WeightsError("ONNX network: only lc0's own weights can be read")
    layout = net.message(4, "format")
    if layout.integer(1) != 1:
        raise WeightsError(f"weights encoding {layout.integer(1)}: expected 1 (LINEAR16)")
    network_format = layout.message(2, "network_format")
    weights = net.message(10, "weights")
    # A file without the format message is the oldest kind (lc0 loader.cc FixOlderWeightsFile).
    structure = network_format.integer(3, 1)
    refusals = [
        (structure not in CONVOLUTIONAL_NETWORKS, NETWORK_NAMES.get(structure, f"structure {structure}")),
        (any(map(weights.has, ATTENTION_FIELDS)), "attention body or policy head"),
        _refuse("input", network_format.integer(1, 1), 1, INPUT_NAMES),
        _refuse("policy head", network_format.integer(4), 2, POLICY_NAMES),
        _refuse("value head", network_format.integer(5), 2, VALUE_NAMES),
        (network_format.integer(2) != 2, f"output format {network_format.integer(2)}"),
        (network_format.integer(6) > 1, f"moves-left head of kind {network_format.integer(6)}"),
        (network_format.integer(7) != 0, "Mish activations"),
    ]
    for refused, what in refusals:
        if refused:
            raise WeightsError(
                f"{what}: expected a convolutional tower with ReLU, the classical 112 input planes, a "
                "convolutional policy head and a WDL value head"
            )


def _refuse(kind: str, value: int, wanted: int, names: dict[int, str]) -> tuple[bool, str]:
    return value != wanted, names.get(value, f"{kind} of kind {value}")


def network_config(weights: Message, moves_left: bool) -> NetworkConfig:
    """The shape of the network, from the sizes of its layers. Raises WeightsError."""
    spec = get_spec("chess")
    squares = spec.board_height * spec.board_width
    blocks = weights.messages(RESIDUAL, "residual")
    if not 1 <= len(blocks) <= 256:
        raise WeightsError(f"{len(blocks)} residual blocks: expected 1 to 256")
    filters = _quotient(
        layer_size(weights.message(INPUT, "input").message(WEIGHTS, "weights")),
        9 * spec.num_planes,
        "filters of the input convolution",
    )
    with_se = {block.has(SE) for block in blocks}
    if len(with_se) != 1:
        raise WeightsError("squeeze-excitation in some blocks only: expected in all or none")
    se_ratio = 0
    if with_se == {True}:
        units = layer_size(blocks[0].message(SE, "se").message(SE_B1, "b1"))
        if units == 0 or filters % units:
            raise WeightsError(f"{units} squeeze units: expected a divisor of the {filters} filters")
        se_ratio = filters // units
    value_hidden = layer_size(weights.message(IP1_VAL_B, "ip1_val_b"))
    moves_left_hidden = layer_size(weights.message(IP1_MOV_B, "ip1_mov_b")) if moves_left else 1
    value_inputs = layer_size(weights.message(IP1_VAL_W, "ip1_val_w"))
    moves_left_inputs = layer_size(weights.message(IP1_MOV_W, "ip1_mov_w"))
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


def _quotient(size: int, divisor: int, what: str) -> int:
    if size == 0 or divisor == 0 or size % divisor:
        raise WeightsError(f"{what}: {size} weights, expected a positive multiple of {divisor}")
    return size // divisor


def tensor_layout(config: NetworkConfig, spec: GameSpec) -> list[ConvNormPlace | LinearPlace]:
    """Every layer of AlphaZeroNet and where lc0's file has it."""
    squares = spec.board_height * spec.board_width
    filters = config.filters
    places: list[ConvNormPlace | LinearPlace] = [
        ConvNormPlace("input", ((INPUT, 0),), (filters, spec.num_planes, 3, 3))
    ]
    for index in range(config.blocks):
        block = (RESIDUAL, index)
        for name, field in (("first", CONV1), ("second", CONV2)):
            prefix = f"blocks.{index}.{name}"
            places.append(ConvNormPlace(prefix, (block, (field, 0)), (filters, filters, 3, 3)))
        if config.se_ratio:
            units, prefix, se = filters // config.se_ratio, f"blocks.{index}.se", (block, (SE, 0))
            places.append(LinearPlace(f"{prefix}.squeeze", se, (SE_W1, SE_B1), (units, filters)))
            places.append(LinearPlace(f"{prefix}.excite", se, (SE_W2, SE_B2), (2 * filters, units)))
    places.append(ConvNormPlace("policy.hidden", ((POLICY1, 0),), (filters, filters, 3, 3)))
    output_shape = (spec.policy_planes, filters, 3, 3)
    places.append(LinearPlace("policy.output", ((POLICY, 0),), (WEIGHTS, BIASES), output_shape))
    channels, hidden = config.value_channels, config.value_hidden
    places.append(ConvNormPlace("value.reduce", ((VALUE, 0),), (channels, filters, 1, 1)))
    places.append(LinearPlace("value.hidden", (), (IP1_VAL_W, IP1_VAL_B), (hidden, channels * squares)))
    places.append(LinearPlace("value.output", (), (IP2_VAL_W, IP2_VAL_B), (3, hidden)))
    if config.moves_left:
        channels, hidden = config.moves_left_channels, config.moves_left_hidden
        places.append(ConvNormPlace("moves_left.reduce", ((MOVES_LEFT, 0),), (channels, filters, 1, 1)))
        places.append(
            LinearPlace("moves_left.hidden", (), (IP1_MOV_W, IP1_MOV_B), (hidden, channels * squares))
        )
        places.append(LinearPlace("moves_left.output", (), (IP2_MOV_W, IP2_MOV_B), (1, hidden)))
    return places


def read_place(weights: Message, place: ConvNormPlace | LinearPlace) -> dict[str, FloatArray]:
    """The arrays of one layer by state-dict key. Raises WeightsError."""
    message = weights
    for field, index in place.path:
        found = message.messages(field, f"field {field}")
        if index >= len(found):
            raise WeightsError(f"{place.prefix}: layer missing from the file")
        message = found[index]
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

    def read(field: int, name: str, default: float) -> FloatArray:
        if not len(block.message(field, name).bytes(PARAMS)):
            return np.full(channels, default, np.float32)
        return shaped(layer_values(block, field, f"{prefix}.{name}"), channels, f"{prefix}.{name}")

    weight = layer_values(block, WEIGHTS, f"{prefix}.conv")
    for field, name in ((BN_MEANS, "bn_means"), (BN_VARIANCES, "bn_stddivs")):
        if not block.has(field):
            raise WeightsError(f"{prefix}: no {name}, expected BatchNorm after the convolution")
    variance = read(BN_VARIANCES, "bn_stddivs", 1.0)
    if variance.min() < 0:
        raise WeightsError(f"{prefix}.bn_stddivs: {variance.min()}: expected variances, at least 0")
    return {
        f"{prefix}.conv.weight": shaped(weight, place.shape, f"{prefix}.conv"),
        f"{prefix}.norm.weight": read(BN_GAMMAS, "bn_gammas", 1.0),
        f"{prefix}.norm.bias": read(BN_BETAS, "bn_betas", 0.0),
        f"{prefix}.norm.running_mean": read(BN_MEANS, "bn_means", 0.0) - read(BIASES, "biases", 0.0),
        f"{prefix}.norm.running_var": variance,
    }


def shaped(values: FloatArray, shape: tuple[int, ...], name: str) -> FloatArray:
    """The values in `shape`. Raises WeightsError when there are more or fewer."""
    if len(values) != math.prod(shape):
        raise WeightsError(
            f"{name}: {len(values)} numbers, expected {math.prod(shape)} for shape {list(shape)}"
        )
    return values.reshape(shape)


def layer_size(layer: Message) -> int:
    """How many numbers a Layer holds."""
    return len(layer.bytes(PARAMS)) // layer_dtype(layer).itemsize


def layer_dtype(layer: Message) -> np.dtype[Any]:
    """How the numbers of a Layer are stored. Raises WeightsError."""
    encoding = layer.integer(ENCODING, LINEAR16)
    if encoding not in ENCODING_DTYPES:
        raise WeightsError(f"{layer.name}: encoding {encoding}: expected one of {list(ENCODING_DTYPES)}")
    return np.dtype(ENCODING_DTYPES[encoding])


def layer_values(message: Message, field: int, name: str) -> FloatArray:
    """The numbers of the Layer in `field` of a message, flat float32. Raises WeightsError."""
    layer = message.message(field, name)
    params, dtype = layer.bytes(PARAMS), layer_dtype(layer)
    if len(params) % dtype.itemsize:
        raise WeightsError(f"{name}: {len(params)} bytes, expected a multiple of {dtype.itemsize}")
    raw = np.frombuffer(params, dtype)
    encoding = layer.integer(ENCODING, LINEAR16)
    values: FloatArray
    if encoding == LINEAR16:
        low, high = layer.float32(MIN_VAL), layer.float32(MAX_VAL)
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
    training = net.message(5, "training_params")
    described: dict[str, str | int | float] = {"source_format": "lc0"}
    for key, text in (("license", net.bytes(2)), ("lc0_params", training.bytes(6))):
        if len(text):
            described[key] = bytes(text).decode("utf-8", errors="replace")
    if training.has(1):
        described["training_steps"] = training.integer(1)
    return described
