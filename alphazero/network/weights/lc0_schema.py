"""lc0's network file as protobuf messages: the schema, and which networks can be represented.

The numbers are those of net.proto (LeelaChessZero/lczero-common) and lc0 src/neural/loader.cc. The messages
are made from the table below when first used, so that no schema compiler is needed. Integers are 64 bits
wide and texts are bytes: the wire form is the same, and a file with an absurd number is refused for that
number.

A file may be hostile, so its fields are counted before the protobuf library parses them: the library makes
an object for every one, so that 20 million empty ones of two bytes fill the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from alphazero.base.errors import WeightsError

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


def _weight_and_bias(number: int, name: str) -> tuple[Field, Field]:
    """The fields of a layer's weight and of its bias."""
    return Field(number, f"{name}_w", "Layer"), Field(number + 1, f"{name}_b", "Layer")


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
        Field(8, "smolgen_activation", INTEGER),
        Field(9, "ffn_activation", INTEGER),
        Field(10, "input_embedding", INTEGER),
    ),
    "TrainingParams": (Field(1, "training_steps", INTEGER), Field(6, "lc0_params", BYTES)),
    "Weights": (
        Field(1, "input", "ConvBlock"),
        Field(2, "residual", "Residual", repeated=True),
        Field(11, "policy1", "ConvBlock"),
        Field(3, "policy", "ConvBlock"),
        # Of the attention policy head: embedding, query, key and promotions.
        *_weight_and_bias(4, "ip_pol"),
        *_weight_and_bias(17, "ip2_pol"),
        *_weight_and_bias(19, "ip3_pol"),
        Field(22, "ip4_pol_w", "Layer"),
        Field(6, "value", "ConvBlock"),
        *_weight_and_bias(7, "ip1_val"),
        *_weight_and_bias(9, "ip2_val"),
        Field(12, "moves_left", "ConvBlock"),
        *_weight_and_bias(13, "ip1_mov"),
        *_weight_and_bias(15, "ip2_mov"),
        # Of attention bodies.
        *_weight_and_bias(37, "ip_emb_preproc"),
        *_weight_and_bias(25, "ip_emb"),
        Field(39, "ip_emb_ln_gammas", "Layer"),
        Field(40, "ip_emb_ln_betas", "Layer"),
        Field(33, "ip_mult_gate", "Layer"),
        Field(34, "ip_add_gate", "Layer"),
        Field(41, "ip_emb_ffn", "FeedForward"),
        Field(42, "ip_emb_ffn_ln_gammas", "Layer"),
        Field(43, "ip_emb_ffn_ln_betas", "Layer"),
        Field(27, "encoder", "Encoder", repeated=True),
        Field(28, "headcount", INTEGER),
        Field(35, "smolgen_w", "Layer"),
        *_weight_and_bias(29, "ip_val"),
        *_weight_and_bias(31, "ip_mov"),
        Field(44, "value_heads", "ValueHeads"),
        Field(45, "policy_heads", "PolicyHeads"),
        # Only networks that cannot be read have these; that they are there is all we ask.
        Field(21, "pol_encoder", BYTES, repeated=True),
    ),
    "Encoder": (
        Field(1, "mha", "Attention"),
        Field(2, "ln1_gammas", "Layer"),
        Field(3, "ln1_betas", "Layer"),
        Field(4, "ffn", "FeedForward"),
        Field(5, "ln2_gammas", "Layer"),
        Field(6, "ln2_betas", "Layer"),
    ),
    "Attention": (
        *_layers(("q_w", "q_b", "k_w", "k_b", "v_w", "v_b", "dense_w", "dense_b")),
        Field(9, "smolgen", "Smolgen"),
        # Relative positions, which lc0 refuses too.
        Field(10, "rpe_q", BYTES),
        Field(11, "rpe_k", BYTES),
        Field(12, "rpe_v", BYTES),
    ),
    "Smolgen": _layers(
        (
            *("compress", "dense1_w", "dense1_b", "ln1_gammas", "ln1_betas"),
            *("dense2_w", "dense2_b", "ln2_gammas", "ln2_betas"),
        )
    ),
    "FeedForward": _layers(("dense1_w", "dense1_b", "dense2_w", "dense2_b")),
    "PolicyHeads": (
        *_layers(("ip_pol_w", "ip_pol_b")),
        Field(3, "vanilla", "PolicyHead"),
        Field(4, "optimistic_st", "PolicyHead"),
        Field(5, "soft", "PolicyHead"),
        Field(6, "opponent", "PolicyHead"),
        Field(7, "policy_head_map", BYTES, repeated=True),
    ),
    "PolicyHead": (
        *_layers(("ip_pol_w", "ip_pol_b", "ip2_pol_w", "ip2_pol_b", "ip3_pol_w", "ip3_pol_b", "ip4_pol_w")),
        Field(8, "pol_encoder", BYTES, repeated=True),
    ),
    "ValueHeads": (
        Field(1, "winner", "ValueHead"),
        Field(2, "q", "ValueHead"),
        Field(3, "st", "ValueHead"),
        Field(4, "value_head_map", BYTES, repeated=True),
    ),
    "ValueHead": _layers(
        (
            *("ip_val_w", "ip_val_b", "ip1_val_w", "ip1_val_b", "ip2_val_w", "ip2_val_b"),
            *("ip_val_err_w", "ip_val_err_b", "ip_val_cat_w", "ip_val_cat_b"),
        )
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
    return next((what for what, found in faults.items() if found), None)


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
        kinds = {field.number: field.kind for field in MESSAGES[message]}
        while rest:
            count += 1
            if count > MAX_FIELDS:
                raise WeightsError(f"more than {MAX_FIELDS} fields: no network has as many")
            key, rest = _varint(rest)
            wire_type, kind = key & 7, kinds.get(key >> 3, "")
            size, rest = (
                _varint(rest)
                if wire_type in (VARINT, LENGTH_DELIMITED)
                else (FIXED_BYTES.get(wire_type, len(rest)), rest)
            )
            if wire_type == VARINT:
                continue
            if wire_type == LENGTH_DELIMITED and kind in MESSAGES:
                waiting.append((kind, rest[:size]))
            rest = rest[size:]


def _varint(data: memoryview) -> tuple[int, memoryview]:
    """A base-128 number and what follows it."""
    value = 0
    for index, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, data[index + 1 :]
    return 0, data[:0]
