"""lc0's network file as protobuf messages: the schema, and which networks can be represented.

The numbers are those of net.proto (LeelaChessZero/lczero-common) and lc0 src/neural/loader.cc. The messages
are made from SCHEMA when first used, so that no schema compiler is needed. Integers are 64 bits
wide and texts are bytes: the wire form is the same, and a file with an absurd number is refused for that
number.

A file may be hostile, so its fields are counted before the protobuf library parses them: the library makes
an object for every one, so that 20 million empty ones of two bytes fill the memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from alphazero.base.errors import WeightsError

PACKAGE = "alphazero.lc0"
# As net.proto writes it, a subset. Messages are optional or repeated.
SCHEMA = """
message Net {
  fixed32 magic = 1; bytes license = 2; Version min_version = 3; Format format = 4;
  TrainingParams training_params = 5; Weights weights = 10; bytes onnx_model = 11;
}
message Version { uint64 major = 1; uint64 minor = 2; uint64 patch = 3; }
message Format { uint64 weights_encoding = 1; NetworkFormat network_format = 2; }
message NetworkFormat {
  uint64 input = 1; uint64 output = 2; uint64 network = 3; uint64 policy = 4; uint64 value = 5;
  uint64 moves_left = 6; uint64 default_activation = 7; uint64 smolgen_activation = 8;
  uint64 ffn_activation = 9; uint64 input_embedding = 10;
}
message TrainingParams { uint64 training_steps = 1; bytes lc0_params = 6; }
message Weights {
  // ip_pol, ip2_pol, ip3_pol, ip4_pol: the attention policy head's embedding, query, key and promotions.
  // pol_encoder: only networks that cannot be read have it; that it is there is all we ask.
  ConvBlock input = 1; repeated Residual residual = 2; ConvBlock policy1 = 11; ConvBlock policy = 3;
  Layer ip_pol_w = 4; Layer ip_pol_b = 5; Layer ip2_pol_w = 17; Layer ip2_pol_b = 18;
  Layer ip3_pol_w = 19; Layer ip3_pol_b = 20; Layer ip4_pol_w = 22; ConvBlock value = 6;
  Layer ip1_val_w = 7; Layer ip1_val_b = 8; Layer ip2_val_w = 9; Layer ip2_val_b = 10;
  ConvBlock moves_left = 12; Layer ip1_mov_w = 13; Layer ip1_mov_b = 14; Layer ip2_mov_w = 15;
  Layer ip2_mov_b = 16; Layer ip_emb_preproc_w = 37; Layer ip_emb_preproc_b = 38; Layer ip_emb_w = 25;
  Layer ip_emb_b = 26; Layer ip_emb_ln_gammas = 39; Layer ip_emb_ln_betas = 40; Layer ip_mult_gate = 33;
  Layer ip_add_gate = 34; FeedForward ip_emb_ffn = 41; Layer ip_emb_ffn_ln_gammas = 42;
  Layer ip_emb_ffn_ln_betas = 43; repeated Encoder encoder = 27; uint64 headcount = 28;
  Layer smolgen_w = 35; Layer ip_val_w = 29; Layer ip_val_b = 30; Layer ip_mov_w = 31;
  Layer ip_mov_b = 32; ValueHeads value_heads = 44; PolicyHeads policy_heads = 45;
  repeated bytes pol_encoder = 21;
}
message Encoder {
  Attention mha = 1; Layer ln1_gammas = 2; Layer ln1_betas = 3; FeedForward ffn = 4;
  Layer ln2_gammas = 5; Layer ln2_betas = 6;
}
message Attention {
  // rpe: relative positions, which lc0 refuses too.
  Layer q_w = 1; Layer q_b = 2; Layer k_w = 3; Layer k_b = 4; Layer v_w = 5; Layer v_b = 6;
  Layer dense_w = 7; Layer dense_b = 8; Smolgen smolgen = 9; bytes rpe_q = 10; bytes rpe_k = 11;
  bytes rpe_v = 12;
}
message Smolgen {
  Layer compress = 1; Layer dense1_w = 2; Layer dense1_b = 3; Layer ln1_gammas = 4; Layer ln1_betas = 5;
  Layer dense2_w = 6; Layer dense2_b = 7; Layer ln2_gammas = 8; Layer ln2_betas = 9;
}
message FeedForward { Layer dense1_w = 1; Layer dense1_b = 2; Layer dense2_w = 3; Layer dense2_b = 4; }
message PolicyHeads {
  Layer ip_pol_w = 1; Layer ip_pol_b = 2; PolicyHead vanilla = 3; PolicyHead optimistic_st = 4;
  PolicyHead soft = 5; PolicyHead opponent = 6; repeated bytes policy_head_map = 7;
}
message PolicyHead {
  Layer ip_pol_w = 1; Layer ip_pol_b = 2; Layer ip2_pol_w = 3; Layer ip2_pol_b = 4; Layer ip3_pol_w = 5;
  Layer ip3_pol_b = 6; Layer ip4_pol_w = 7; repeated bytes pol_encoder = 8;
}
message ValueHeads {
  ValueHead winner = 1; ValueHead q = 2; ValueHead st = 3; repeated bytes value_head_map = 4;
}
message ValueHead {
  Layer ip_val_w = 1; Layer ip_val_b = 2; Layer ip1_val_w = 3; Layer ip1_val_b = 4; Layer ip2_val_w = 5;
  Layer ip2_val_b = 6; Layer ip_val_err_w = 7; Layer ip_val_err_b = 8; Layer ip_val_cat_w = 9;
  Layer ip_val_cat_b = 10;
}
message ConvBlock {
  Layer weights = 1; Layer biases = 2; Layer bn_means = 3; Layer bn_stddivs = 4; Layer bn_gammas = 5;
  Layer bn_betas = 6;
}
message Residual { ConvBlock conv1 = 1; ConvBlock conv2 = 2; SqueezeExcitation se = 3; }
message SqueezeExcitation { Layer w1 = 1; Layer b1 = 2; Layer w2 = 3; Layer b2 = 4; }
message Layer { float min_val = 1; float max_val = 2; bytes params = 3; uint64 encoding = 4; }
"""
_MESSAGE = re.compile(r"message (\w+) {(.*?)}", re.DOTALL)
_FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


@dataclass(frozen=True)
class Field:
    """One field of a message. kind: a scalar, or the name of another message."""

    name: str
    kind: str
    repeated: bool


# Each message's fields by number.
MESSAGES: dict[str, dict[int, Field]] = {
    message: {
        int(number): Field(name, kind, bool(repeated))
        for repeated, kind, name, number in _FIELD.findall(body)
    }
    for message, body in _MESSAGE.findall(SCHEMA)
}


@cache
def net_class() -> Any:  # noqa: ANN401 - protobuf makes the class at run time
    """The class of a whole file: `net_class().FromString(data)`, `net_class()(magic=...)`."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="alphazero/lc0.proto", package=PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in fields.items():
            entry = message.field.add(name=field.name, number=number)
            entry.label = types.LABEL_REPEATED if field.repeated else types.LABEL_OPTIONAL
            entry.type = types.TYPE_MESSAGE
            if field.kind in MESSAGES:
                entry.type_name = f".{PACKAGE}.{field.kind}"
            else:
                entry.type = types.Type.Value(f"TYPE_{field.kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Net"))


# The newest net.proto this reader was written for; lc0 refuses files that ask for a newer lc0 than itself.
NEWEST_VERSION = (0, 33, 0)
ANY_VERSION = (97, 98, 99)  # a mark that lc0's loader accepts whatever its own version is

LINEAR16 = 1  # Format.Encoding
INPUT_CLASSICAL_112, OUTPUT_WDL, VALUE_WDL, MOVES_LEFT_V1 = 1, 2, 2, 1
TOWER_WITHOUT_SE, TOWER_WITH_SE = 3, 4  # NETWORK_CLASSICAL_WITH_HEADFORMAT, NETWORK_SE_WITH_HEADFORMAT
# NETWORK_ATTENTIONBODY_WITH_HEADFORMAT, ..._MULTIHEADFORMAT, and an older number of the latter.
ATTENTION_BODIES = ATTENTION_BODY, ATTENTION_BODY_WITH_HEADS, _ = 6, 7, 134
EMBEDDING_MAP, EMBEDDING_DENSE = 1, 2  # INPUT_EMBEDDING_PE_MAP, INPUT_EMBEDDING_PE_DENSE
# PolicyFormat of our heads, and back.
POLICY_NUMBERS = {"convolution": 2, "attention": 3}
POLICY_HEADS = {number: head for head, number in POLICY_NUMBERS.items()}
# What a network that ours can represent says in its format: NetworkFormat's fields and their numbers.
REPRESENTED = {
    "network": (TOWER_WITHOUT_SE, TOWER_WITH_SE, *ATTENTION_BODIES),
    "input": (INPUT_CLASSICAL_112,),
    "policy": tuple(POLICY_HEADS),
    "value": (VALUE_WDL,),
    "output": (OUTPUT_WDL,),
    "moves_left": (0, MOVES_LEFT_V1),
    "default_activation": (0, 1),
}


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
    if net.format.weights_encoding != LINEAR16:
        raise WeightsError(f"weights encoding {net.format.weights_encoding}: expected 1 (LINEAR16)")
    what = foreign_part(net)
    if what is not None:
        raise WeightsError(
            f"{what}: expected a convolutional tower with ReLU or an attention body, the classical 112 input "
            "planes, a policy head of convolution or of attention without encoders, and a WDL value head"
        )


def foreign_part(net: Message) -> str | None:
    """The first part of a network that ours cannot have."""
    layout, weights = net.format.network_format, net.weights
    for name, numbers in REPRESENTED.items():
        number = getattr(layout, name)
        if number not in numbers and (name != "input" or layout.HasField(name)):
            return f"network format {name} {number}"
    has_attention = POLICY_HEADS[layout.policy] == "attention"
    policies, values = weights.policy_heads, weights.value_heads
    heads = (policies.vanilla, policies.optimistic_st, policies.soft, policies.opponent)
    relative = [(encoder.mha, name) for encoder in weights.encoder for name in ("rpe_q", "rpe_k", "rpe_v")]
    faults = {"encoders in a policy head": any(len(head.pol_encoder) > 0 for head in (weights, *heads))}
    if is_attention_body(net):
        faults |= {
            "convolutional policy head on an attention body": not has_attention,
            "relative positions": any(mha.HasField(name) for mha, name in relative),
            "heads by other names": len(policies.policy_head_map) + len(values.value_head_map) > 0,
        }
    else:
        faults |= {
            "attention body": len(weights.encoder) > 0 or weights.HasField("ip_emb_w"),
            "attention policy head in a file whose format is convolution": weights.HasField("ip2_pol_w")
            and not has_attention,
            # lc0 would take layers from there.
            "several policy heads": weights.HasField("policy_heads") and has_attention,
            "Mish activations": layout.default_activation != 0,
        }
    return next((what for what, is_present in faults.items() if is_present), None)


def is_attention_body(net: Message) -> bool:
    """Whether the body is encoders; the first such files say that they are towers."""
    structure = net.format.network_format.network
    return structure in ATTENTION_BODIES or (structure == TOWER_WITH_SE and len(net.weights.encoder) > 0)


VARINT, LENGTH_DELIMITED = 0, 2
FIXED_BYTES = {1: 8, 5: 4}  # by wire type
# 256 residual blocks, the most there may be, have 26,000 with every field that lc0 knows.
MAX_FIELDS = 50_000


def check_num_fields(data: memoryview) -> None:
    """Raise WeightsError for a Net of more than MAX_FIELDS fields; damage is the library's to find."""
    waiting = [("Net", data)]
    count = 0
    while waiting:
        message, rest = waiting.pop()
        fields = MESSAGES[message]
        while rest:
            count += 1
            if count > MAX_FIELDS:
                raise WeightsError(f"more than {MAX_FIELDS} fields: no network has as many")
            key, rest = _varint(rest)
            wire_type, field = key & 7, fields.get(key >> 3)
            size, rest = (
                _varint(rest)
                if wire_type in (VARINT, LENGTH_DELIMITED)
                else (FIXED_BYTES.get(wire_type, len(rest)), rest)
            )
            if wire_type == VARINT:
                continue
            if wire_type == LENGTH_DELIMITED and field is not None and field.kind in MESSAGES:
                waiting.append((field.kind, rest[:size]))
            rest = rest[size:]


def _varint(data: memoryview) -> tuple[int, memoryview]:
    """A base-128 number and what follows it."""
    value = 0
    for index, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, data[index + 1 :]
    return 0, data[:0]
