"""The layers of lc0's network files: where each tensor of ours lies, and how its numbers are read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from alphazero.base.errors import WeightsError
from alphazero.network.weights.lc0_schema import LINEAR16

FloatArray = npt.NDArray[np.float32]

# Weights.Layer.Encoding (newer files of lc0; absent is LINEAR16)
FLOAT16, BFLOAT16, FLOAT32 = 2, 3, 4
ENCODING_DTYPES = {LINEAR16: "<u2", FLOAT16: "<f2", BFLOAT16: "<u2", FLOAT32: "<f4"}
REPEATED = ("residual", "encoder")  # fields that stand many times


# A ConvNorm's tensors in lc0's ConvBlock; bn_stddivs holds variances despite its name.
CONV_NORM_FIELDS = ("weights", "bn_gammas", "bn_betas", "bn_means", "bn_stddivs")
CONV_NORM_NAMES = ("conv.weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")


@dataclass(frozen=True)
class LayerPlace:
    """A layer of ours and the message that has each of its tensors in one of `fields`.

    path: to the message, names of fields and indices into those that are repeated. shape: of the weight.
    """

    prefix: str
    path: tuple[str | int, ...]
    fields: tuple[str, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...] = ("weight", "bias")

    @property
    def keys(self) -> tuple[str, ...]:
        """The state-dict key of each field."""
        return tuple(f"{self.prefix}.{name}" for name in self.names[: len(self.fields)])

    @property
    def is_conv_norm(self) -> bool:
        """Whether it is made by conv_norm."""
        return self.fields == CONV_NORM_FIELDS


def conv_norm(prefix: str, path: tuple[str | int, ...], shape: tuple[int, ...]) -> LayerPlace:
    """The place of a ConvNorm."""
    return LayerPlace(prefix, path, CONV_NORM_FIELDS, shape, CONV_NORM_NAMES)


def message_at(weights: Any, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - protobuf's own classes
    """The message at a path of field names, and of indices into those that are repeated."""
    message = weights
    for step in path:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    return message


def read_place(weights: Message, layer: LayerPlace) -> dict[str, FloatArray]:
    """The arrays of one layer by state-dict key. Raises WeightsError."""
    message: Any = weights
    for step in layer.path:
        if isinstance(step, str) and step not in REPEATED and not message.HasField(step):
            raise WeightsError(f"{layer.prefix}: layer missing from the file")
        message = message_at(message, (step,))  # the shape of the network says how many are repeated
    if layer.is_conv_norm:
        return read_conv_norm(message, layer)
    arrays = [layer_values(message, field, layer.prefix) for field in layer.fields]
    shapes = (layer.shape, layer.shape[:1])
    if layer.prefix == "policy.output":
        # lc0's tools save 80 planes and use the first ones.
        weight, bias = arrays
        if len(weight) != len(bias) * math.prod(layer.shape[1:]):
            raise WeightsError(f"{layer.prefix}: {len(weight)} weights for {len(bias)} planes")
        arrays = [weight[: math.prod(layer.shape)], bias[: layer.shape[0]]]
    return {
        key: shaped(values, shape, key)
        for key, values, shape in zip(layer.keys, arrays, shapes[: len(arrays)], strict=True)
    }


def read_conv_norm(block: Message, layer: LayerPlace) -> dict[str, FloatArray]:
    """The arrays of a ConvBlock. Raises WeightsError.

    Old files have a bias in place of beta and no gamma: norm(x + bias) is the norm with the mean less
    the bias (lc0 src/neural/network_legacy.cc, ConvBlock).
    """
    prefix, channels = layer.prefix, layer.shape[:1]

    def read(field: str, default: float) -> FloatArray:
        if not getattr(block, field).params:
            return np.full(channels, default, np.float32)
        return shaped(layer_values(block, field, f"{prefix}.{field}"), channels, f"{prefix}.{field}")

    weight = layer_values(block, "weights", f"{prefix}.conv")
    for field in ("bn_means", "bn_stddivs"):
        if not block.HasField(field):
            raise WeightsError(f"{prefix}: no {field}, expected BatchNorm after the convolution")
    variance = read("bn_stddivs", 1.0)
    if variance.min() <= 0:
        raise WeightsError(f"{prefix}.bn_stddivs: {variance.min()}: expected variances above 0")
    arrays = (
        shaped(weight, layer.shape, f"{prefix}.conv"),
        read("bn_gammas", 1.0),
        read("bn_betas", 0.0),
        read("bn_means", 0.0) - read("biases", 0.0),
        variance,
    )
    return dict(zip(layer.keys, arrays, strict=True))


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
    return len(layer.params) // np.dtype(ENCODING_DTYPES[layer_encoding(layer, field)]).itemsize


def layer_encoding(layer: Message, name: str) -> int:
    """How the numbers of a Layer are stored. Raises WeightsError."""
    encoding = int(layer.encoding) if layer.HasField("encoding") else LINEAR16
    if encoding not in ENCODING_DTYPES:
        raise WeightsError(f"{name}: encoding {encoding}: expected one of {list(ENCODING_DTYPES)}")
    return encoding


def layer_values(message: Message, field: str, name: str) -> FloatArray:
    """The numbers of the Layer in `field` of a message, flat float32. Raises WeightsError."""
    layer = getattr(message, field)
    params, encoding = layer.params, layer_encoding(layer, name)
    dtype = np.dtype(ENCODING_DTYPES[encoding])
    if len(params) % dtype.itemsize:
        raise WeightsError(f"{name}: {len(params)} bytes, expected a multiple of {dtype.itemsize}")
    raw = np.frombuffer(params, dtype)
    values: FloatArray
    if encoding == LINEAR16:
        low, high = layer.min_val, layer.max_val
        if not (math.isfinite(low) and math.isfinite(high)):
            raise WeightsError(f"{name}: from {low} to {high}: holds numbers that are not finite")
        with np.errstate(over="ignore", invalid="ignore"):  # the check below has a better message
            values = (low + raw.astype(np.float64) * ((high - low) / 0xFFFF)).astype(np.float32)
    elif encoding == BFLOAT16:
        values = (raw.astype(np.uint32) << 16).view(np.float32)
    else:
        values = raw.astype(np.float32)
    if not np.isfinite(values).all():
        raise WeightsError(f"{name}: holds numbers that are not finite")
    return values


def quotient(size: int, divisor: int, what: str) -> int:
    """size / divisor, a whole number above 0. Raises WeightsError that names `what`."""
    if size == 0 or divisor == 0 or size % divisor:
        raise WeightsError(f"{what}: {size} weights, expected a positive multiple of {divisor}")
    return size // divisor
