"""lc0's network file as protobuf messages: the fields that we read, or need in order to write one.

lc0's files are Protocol Buffers. The numbers are those of net.proto (LeelaChessZero/lczero-common); the
messages are made from the table below when they are first asked for, so that no compiler of schemas is
needed. Integers are 64 bits wide and texts are bytes: on the wire they look the same, and a file with an
absurd number is refused for the number it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "alphazero.lc0"
INTEGER, FIXED32, FLOAT, BYTES = "integer", "fixed32", "float", "bytes"


@dataclass(frozen=True)
class Field:
    """One field of a message. kind: one of the four above, or the name of another message."""

    number: int
    name: str
    kind: str
    repeated: bool = False


def _layers(names: tuple[str, ...]) -> tuple[Field, ...]:
    """Fields 1, 2, ... that hold a Layer each."""
    return tuple(Field(number, name, "Layer") for number, name in enumerate(names, start=1))


MESSAGES: dict[str, tuple[Field, ...]] = {
    "Net": (
        Field(1, "magic", FIXED32),
        Field(2, "license", BYTES),
        Field(3, "min_version", "Version"),
        Field(4, "format", "Format"),
        Field(5, "training_params", "TrainingParams"),
        Field(10, "weights", "Weights"),
        Field(11, "onnx_model", BYTES),
    ),
    "Version": (Field(1, "major", INTEGER), Field(2, "minor", INTEGER), Field(3, "patch", INTEGER)),
    "Format": (Field(1, "weights_encoding", INTEGER), Field(2, "network_format", "NetworkFormat")),
    "NetworkFormat": (
        Field(1, "input", INTEGER),
        Field(2, "output", INTEGER),
        Field(3, "network", INTEGER),
        Field(4, "policy", INTEGER),
        Field(5, "value", INTEGER),
        Field(6, "moves_left", INTEGER),
        Field(7, "default_activation", INTEGER),
    ),
    "TrainingParams": (Field(1, "training_steps", INTEGER), Field(6, "lc0_params", BYTES)),
    "Weights": (
        Field(1, "input", "ConvBlock"),
        Field(2, "residual", "Residual", repeated=True),
        Field(11, "policy1", "ConvBlock"),
        Field(3, "policy", "ConvBlock"),
        # Of the attention policy head: embedding, query, key and promotions.
        Field(4, "ip_pol_w", "Layer"),
        Field(5, "ip_pol_b", "Layer"),
        Field(17, "ip2_pol_w", "Layer"),
        Field(18, "ip2_pol_b", "Layer"),
        Field(19, "ip3_pol_w", "Layer"),
        Field(20, "ip3_pol_b", "Layer"),
        Field(22, "ip4_pol_w", "Layer"),
        Field(6, "value", "ConvBlock"),
        Field(7, "ip1_val_w", "Layer"),
        Field(8, "ip1_val_b", "Layer"),
        Field(9, "ip2_val_w", "Layer"),
        Field(10, "ip2_val_b", "Layer"),
        Field(12, "moves_left", "ConvBlock"),
        Field(13, "ip1_mov_w", "Layer"),
        Field(14, "ip1_mov_b", "Layer"),
        Field(15, "ip2_mov_w", "Layer"),
        Field(16, "ip2_mov_b", "Layer"),
        # Only networks that cannot be read have these; that they are there is all we ask.
        Field(21, "pol_encoder", BYTES, repeated=True),
        Field(25, "ip_emb_w", BYTES),
        Field(27, "encoder", BYTES, repeated=True),
        Field(45, "policy_heads", BYTES),
    ),
    "ConvBlock": _layers(("weights", "biases", "bn_means", "bn_stddivs", "bn_gammas", "bn_betas")),
    "Residual": (
        Field(1, "conv1", "ConvBlock"),
        Field(2, "conv2", "ConvBlock"),
        Field(3, "se", "SqueezeExcitation"),
    ),
    "SqueezeExcitation": _layers(("w1", "b1", "w2", "b2")),
    "Layer": (
        Field(1, "min_val", FLOAT),
        Field(2, "max_val", FLOAT),
        Field(3, "params", BYTES),
        Field(4, "encoding", INTEGER),
    ),
}


@cache
def net_class() -> Any:  # noqa: ANN401 - protobuf makes the class at run time
    """The class of a whole file: `net_class().FromString(data)`, `net_class()(magic=...)`."""
    types = descriptor_pb2.FieldDescriptorProto
    scalars = {
        INTEGER: types.TYPE_UINT64,
        FIXED32: types.TYPE_FIXED32,
        FLOAT: types.TYPE_FLOAT,
        BYTES: types.TYPE_BYTES,
    }
    file = descriptor_pb2.FileDescriptorProto(name="alphazero/lc0.proto", package=PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            entry = message.field.add(name=field.name, number=field.number)
            entry.label = types.LABEL_REPEATED if field.repeated else types.LABEL_OPTIONAL
            entry.type = scalars.get(field.kind, types.TYPE_MESSAGE)
            if field.kind in MESSAGES:
                entry.type_name = f".{PACKAGE}.{field.kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Net"))
