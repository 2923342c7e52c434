"""Writes lc0 network files for tests, from net.proto's field numbers alone (not from the reader's table)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from alphazero.network.model.heads import AttentionPolicyHead
from alphazero.network.model.resnet import AlphaZeroNet

RULE50_PLANE = 109  # of 0 to 1, as our networks read it
Fields = Iterable[tuple[int, "int | float | bytes"]]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | float | bytes]) -> bytes:
    """Encode (number, value) pairs: int as varint, float as 32 bits, bytes with their length."""
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            out += varint(number << 3) + varint(value)
    return out


def layer(values: torch.Tensor) -> bytes:
    """16-bit linear between the least and the greatest value."""
    array = values.detach().double().flatten().numpy()
    low, high = float(np.float32(array.min())), float(np.float32(array.max()))
    scaled = (array - low) / (high - low) if high > low else np.zeros_like(array)
    params = np.clip(np.round(scaled * 65535), 0, 65535).astype("<u2").tobytes()
    return message((1, low), (2, high), (3, params))


def conv_block(pair: nn.Module, *, bias_style: bool = False) -> bytes:
    """A ConvBlock with BatchNorm; bias_style is the older form without gamma and beta."""
    norm = pair.norm
    fields = [(1, layer(pair.conv.weight))]
    if bias_style:
        # Any bias will do: it is taken off the mean.
        bias = torch.linspace(-0.5, 0.5, norm.num_features)
        fields += [(2, layer(bias)), (3, layer(norm.running_mean + bias)), (4, layer(norm.running_var))]
    else:
        fields += [(3, layer(norm.running_mean)), (4, layer(norm.running_var))]
        fields += [(5, layer(norm.weight)), (6, layer(norm.bias))]
    return message(*fields)


def weights_fields(
    network: AlphaZeroNet, *, bias_style: bool = False, planes: int = 80
) -> list[tuple[int, bytes]]:
    """The Weights message as (field, bytes) pairs; convolution gets `planes` planes as lc0's files have."""
    fields = [(1, conv_block(network.input, bias_style=bias_style))]
    for block in network.blocks:
        parts = [(1, conv_block(block.first, bias_style=bias_style))]
        parts += [(2, conv_block(block.second, bias_style=bias_style))]
        if block.se is not None:
            squeeze, excite = block.se.squeeze, block.se.excite
            unit = [layer(squeeze.weight), layer(squeeze.bias), layer(excite.weight), layer(excite.bias)]
            parts.append((3, message(*enumerate(unit, start=1))))
        fields.append((2, message(*parts)))
    fields += policy_fields(network.policy, bias_style=bias_style, planes=planes)
    heads = [(6, network.value, 7)] + ([(12, network.moves_left, 13)] if network.moves_left else [])
    for conv_field, head, first in heads:
        fields.append((conv_field, conv_block(head.reduce, bias_style=bias_style)))
        linear = (head.hidden.weight, head.hidden.bias, head.output.weight, head.output.bias)
        fields += [(first + index, layer(values)) for index, values in enumerate(linear)]
    return fields


def policy_fields(head: nn.Module, *, bias_style: bool, planes: int) -> list[tuple[int, bytes]]:
    """The layers of a policy head of either kind."""
    if isinstance(head, AttentionPolicyHead):
        linears = ((4, head.embed), (17, head.query), (19, head.key))
        fields = [(number, layer(linear.weight)) for number, linear in linears]
        fields += [(number + 1, layer(linear.bias)) for number, linear in linears]
        return [*fields, (22, layer(head.promotion.weight))]
    output = head.output
    spare = planes - output.out_channels
    weight = torch.cat([output.weight, torch.zeros(spare, *output.weight.shape[1:])])
    bias = torch.cat([output.bias, torch.zeros(spare)])
    return [
        (11, conv_block(head.hidden, bias_style=bias_style)),
        (3, message((1, layer(weight)), (2, layer(bias)))),
    ]


def network_format(**changes: int) -> bytes:
    """NetworkFormat of a classical-input SE tower with convolutional policy, WDL and no moves left."""
    names = ("input", "output", "network", "policy", "value", "moves_left", "activation")
    values = {**dict(zip(names, (1, 2, 4, 2, 2, 0, 0), strict=True)), **changes}
    return message(*((names.index(name) + 1, value) for name, value in values.items()))


def net_file(
    weights: Fields,
    *,
    magic: int = 0x1C0,
    version: tuple[int, int, int] = (0, 21, 0),
    encoding: int = 1,
    format_bytes: bytes | None = None,
    extra: Fields = (),
) -> bytes:
    """A whole Net message, not compressed."""
    format_bytes = network_format() if format_bytes is None else format_bytes
    start = b"\x0d" + struct.pack("<I", magic)
    return start + message(
        (2, b"a licence"),
        (3, message(*enumerate(version, start=1))),
        (4, message((1, encoding), (2, format_bytes))),
        (5, message((1, 1234))),
        (10, message(*weights)),
        *extra,
    )


def random_planes() -> torch.Tensor:
    """Inputs f32 [8, 112, 8, 8] that no board has, with eight counts of the fifty-move rule."""
    planes = (torch.rand(8, 112, 8, 8, generator=torch.Generator().manual_seed(3)) < 0.2).float()
    planes[:, RULE50_PLANE] = torch.linspace(0, 1, 8)[:, None, None]
    return planes
