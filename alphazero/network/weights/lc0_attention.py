"""Attention bodies in lc0's network files, their shape and where their tensors lie; the heads of either body.

lc0 src/neural/network_legacy.cc has the meaning of the layers, src/neural/loader.cc (FixOlderWeightsFile)
what older files mean. Files have one policy and one value head, or several by name, of which `vanilla` and
`winner` play. Those beside them are kept as they are (NetworkConfig.other_heads) and written again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from alphazero.base.errors import WeightsError
from alphazero.games.registry import GameSpec
from alphazero.network.model.attention import PIECE_PLANES, sizes_of
from alphazero.network.model.heads import NUM_OFFSETS, policy_widths
from alphazero.network.weights.lc0_layers import LayerPlace, conv_norm, layer_size, message_at, quotient
from alphazero.network.weights.lc0_schema import (
    ATTENTION_BODY,
    EMBEDDING_DENSE,
    EMBEDDING_MAP,
    MOVES_LEFT_V1,
    TOWER_WITH_SE,
)
from alphazero.settings.sections import NetworkConfig

# NetworkFormat.ActivationFunction of ours; 0 is the default activation.
ACTIVATION_NUMBERS = {"mish": 1, "relu": 2, "swish": 7, "relu_2": 8}
ACTIVATION_NAMES = {number: name for name, number in ACTIVATION_NUMBERS.items()}
DEFAULT_ACTIVATIONS = ("relu", "mish")  # NetworkFormat.DefaultActivation
EMBEDDING = "body.embedding.squares"  # whose columns are the input planes and what is appended
SQUARES = 64
# The heads beside vanilla and winner, and what a winner has that does not play.
OTHER_HEADS = {"policy_heads": ("optimistic_st", "soft", "opponent"), "value_heads": ("q", "st")}
OTHER_LAYERS = ("ip_val_err_w", "ip_val_err_b", "ip_val_cat_w", "ip_val_cat_b")

Place = tuple[str | int, ...]


def attention_config(net: Any) -> dict[str, Any]:  # noqa: ANN401 - protobuf's own classes
    """The fields of NetworkConfig, from the sizes of the layers, not checked. Raises WeightsError."""
    weights, layout = net.weights, net.format.network_format
    if not len(weights.encoder) or len(weights.residual):
        raise WeightsError(
            f"attention body of {len(weights.encoder)} encoders behind {len(weights.residual)} residual "
            "blocks: expected encoders alone"
        )
    first = weights.encoder[0]
    embedding, policy, value = (message_at(weights, path) for path in places_of_heads(weights))
    filters, ffn_width = layer_size(weights, "ip_emb_b"), layer_size(first.ffn, "dense1_b")
    embedded = layer_size(embedding, "ip_pol_b")
    config = {
        "game": "chess",
        "body": "attention",
        "policy_head": "attention",
        "blocks": len(weights.encoder),
        "filters": filters,
        "heads": weights.headcount,
        "ffn_width": ffn_width,
        "attention_width": unless(layer_size(first.mha, "q_b"), filters),
        "gates": weights.HasField("ip_mult_gate"),
        "policy_width": unless(embedded, filters),
        "policy_key_width": unless(layer_size(policy, "ip2_pol_b"), embedded),
        "value_channels": layer_size(value, "ip_val_b"),
        "value_hidden": layer_size(value, "ip1_val_b"),
        "moves_left": layout.moves_left == MOVES_LEFT_V1,
        "other_heads": other_heads(weights),
        **activations(net),
        **smolgen_sizes(weights, filters),
    }
    if is_dense(net):
        config["embedding"] = "dense"
        config["embedding_width"] = quotient(
            layer_size(weights, "ip_emb_preproc_b"), SQUARES, "dense embedding"
        )
        config["embedding_ffn_width"] = unless(layer_size(weights.ip_emb_ffn, "dense1_b"), ffn_width)
    else:
        config["embedding"] = "map"
    if config["moves_left"]:
        config["moves_left_channels"] = layer_size(weights, "ip_mov_b")
        config["moves_left_hidden"] = layer_size(weights, "ip1_mov_b")
    return config


def unless(width: int, usual: int) -> int:
    """A width as NetworkConfig has it: 0 where it is the usual one."""
    return 0 if width == usual else width


class HeadPlaces(NamedTuple):
    """Where the heads that play lie."""

    embedding: Place
    policy: Place
    value: Place


FLAT = HeadPlaces((), (), ())
NAMED = HeadPlaces(("policy_heads",), ("policy_heads", "vanilla"), ("value_heads", "winner"))


def places_of_heads(weights: Any) -> HeadPlaces:  # noqa: ANN401 - protobuf's own classes
    """As lc0 looks for them in a file."""
    policy_heads = weights.policy_heads
    if policy_heads.vanilla.HasField("ip_pol_w"):
        raise WeightsError("policy head vanilla has a separate embedding: expected the common one")
    return HeadPlaces(
        NAMED.embedding if policy_heads.HasField("ip_pol_w") else FLAT.embedding,
        NAMED.policy if weights.HasField("policy_heads") else FLAT.policy,
        NAMED.value if weights.HasField("value_heads") else FLAT.value,
    )


def places_to_write(config: NetworkConfig) -> HeadPlaces:
    """By name where lc0's own training writes several heads, NETWORK_ATTENTIONBODY_WITH_MULTIHEADFORMAT."""
    return NAMED if config.embedding == "dense" or config.other_heads else FLAT


def is_dense(net: Any) -> bool:  # noqa: ANN401
    """Whether the embedding is PE_DENSE, PE_MAP else. Raises WeightsError for any other."""
    layout, weights = net.format.network_format, net.weights
    embedding = layout.input_embedding if layout.HasField("input_embedding") else EMBEDDING_MAP
    if (
        layout.network == ATTENTION_BODY
        and weights.HasField("policy_heads")
        and weights.HasField("value_heads")
    ):
        embedding = EMBEDDING_DENSE
    if embedding not in (EMBEDDING_MAP, EMBEDDING_DENSE):
        raise WeightsError(f"input embedding of kind {embedding}: expected 1 (PE_MAP) or 2 (PE_DENSE)")
    return bool(embedding == EMBEDDING_DENSE)


def activations(net: Any) -> dict[str, str]:  # noqa: ANN401
    """The activations of a network. Raises WeightsError for those that no network of lc0's has."""
    layout = net.format.network_format
    usual = DEFAULT_ACTIVATIONS[layout.default_activation]
    if layout.network == TOWER_WITH_SE and net.weights.HasField("smolgen_w"):
        return {"activation": usual, "ffn_activation": "relu_2", "smolgen_activation": "swish"}
    names = {0: usual, **ACTIVATION_NAMES}
    config = {"activation": usual}
    for field in ("ffn_activation", "smolgen_activation"):
        number = getattr(layout, field)
        if number not in names:
            raise WeightsError(f"{field} {number}: expected one of {list(names)}")
        config[field] = names[number]
    return config


def smolgen_sizes(weights: Any, filters: int) -> dict[str, int]:  # noqa: ANN401
    """The sizes of smolgen, of which the first is 0 where there is none. Raises WeightsError."""
    present = {encoder.mha.HasField("smolgen") for encoder in weights.encoder}
    if len(present) != 1:
        raise WeightsError("smolgen in some encoders only: expected in all or none")
    if present == {False}:
        return {"smolgen_channels": 0}
    smolgen = weights.encoder[0].mha.smolgen
    return {
        "smolgen_channels": quotient(layer_size(smolgen, "compress"), filters, "smolgen's channels"),
        "smolgen_hidden": layer_size(smolgen, "dense1_b"),
        "smolgen_size": quotient(
            layer_size(smolgen, "dense2_b"), weights.headcount, "smolgen's numbers per head"
        ),
    }


def other_heads(weights: Any) -> str:  # noqa: ANN401
    """The layers of heads that do not play and their sizes, as NetworkConfig.other_heads has them."""
    texts = []
    for group, names in (*OTHER_HEADS.items(), ("value_heads", ("winner",))):
        if not weights.HasField(group):
            continue
        for name in names:
            head = getattr(getattr(weights, group), name)
            texts += [
                f"{group}/{name}/{field.name}={layer_size(head, field.name)}"
                for field, _ in head.ListFields()
                if name != "winner" or field.name in OTHER_LAYERS
            ]
    return " ".join(texts)


def attention_layout(config: NetworkConfig, spec: GameSpec, heads: HeadPlaces) -> list[LayerPlace]:
    """Every layer of an attention body and its heads, and where lc0's file has it."""
    places = [*embedding_layout(config, spec)]
    for index in range(config.blocks):
        places += encoder_layout(config, index)
    if config.smolgen_channels:
        places.append(LayerPlace("body.scores", (), ("smolgen_w",), (SQUARES**2, config.smolgen_size)))
    others = []
    for name, size in sizes_of(config.other_heads).items():
        *path, field = name.split("/")
        others.append(LayerPlace("other_heads", tuple(path), (field,), (size,), (name,)))
    return [*places, *attention_policy(config, heads), *position_heads(config, heads), *others]


def layers(prefix: str, path: Place, name: str, shape: tuple[int, ...]) -> LayerPlace:
    """A layer with a bias, by lc0's names of both fields."""
    return LayerPlace(prefix, path, (f"{name}_w", f"{name}_b"), shape)


def norm(prefix: str, path: Place, name: str, channels: int) -> LayerPlace:
    """A LayerNorm."""
    return LayerPlace(prefix, path, (f"{name}_gammas", f"{name}_betas"), (channels,))


def feed_forward(prefix: str, path: Place, channels: int, width: int) -> list[LayerPlace]:
    """The two layers of a FeedForward."""
    return [
        layers(f"{prefix}.first", path, "dense1", (width, channels)),
        layers(f"{prefix}.second", path, "dense2", (channels, width)),
    ]


def embedding_layout(config: NetworkConfig, spec: GameSpec) -> list[LayerPlace]:
    """The layers before the encoders."""
    prefix, filters, extra = "body.embedding", config.filters, SQUARES
    places = []
    if config.embedding == "dense":
        extra = config.embedding_width
        shape = (SQUARES * extra, SQUARES * PIECE_PLANES)
        width = config.embedding_ffn_width or config.ffn_width
        places = [
            layers(f"{prefix}.positions", (), "ip_emb_preproc", shape),
            norm(f"{prefix}.ln1", (), "ip_emb_ln", filters),
            *feed_forward(f"{prefix}.ffn", ("ip_emb_ffn",), filters, width),
            norm(f"{prefix}.ln2", (), "ip_emb_ffn_ln", filters),
        ]
    if config.gates:
        for field, name in (("ip_mult_gate", "factor_CQ"), ("ip_add_gate", "term_CQ")):
            places.append(LayerPlace(f"{prefix}.gate", (), (field,), (filters, SQUARES), (name,)))
    return [layers(EMBEDDING, (), "ip_emb", (filters, spec.num_planes + extra)), *places]


def encoder_layout(config: NetworkConfig, index: int) -> list[LayerPlace]:
    """The layers of one encoder."""
    prefix, path = f"body.encoders.{index}", ("encoder", index)
    filters, width = config.filters, config.attention_width or config.filters
    mha = (*path, "mha")
    places = [
        layers(f"{prefix}.query", mha, "q", (width, filters)),
        layers(f"{prefix}.key", mha, "k", (width, filters)),
        layers(f"{prefix}.value", mha, "v", (width, filters)),
        layers(f"{prefix}.output", mha, "dense", (filters, width)),
        norm(f"{prefix}.ln1", path, "ln1", filters),
        *feed_forward(f"{prefix}.ffn", (*path, "ffn"), filters, config.ffn_width),
        norm(f"{prefix}.ln2", path, "ln2", filters),
    ]
    if config.smolgen_channels:
        channels, hidden = config.smolgen_channels, config.smolgen_hidden
        generated, smolgen = config.heads * config.smolgen_size, (*mha, "smolgen")
        places += [
            LayerPlace(f"{prefix}.smolgen.compress", smolgen, ("compress",), (channels, filters)),
            layers(f"{prefix}.smolgen.first", smolgen, "dense1", (hidden, SQUARES * channels)),
            norm(f"{prefix}.smolgen.ln1", smolgen, "ln1", hidden),
            layers(f"{prefix}.smolgen.second", smolgen, "dense2", (generated, hidden)),
            norm(f"{prefix}.smolgen.ln2", smolgen, "ln2", generated),
        ]
    return places


def attention_policy(config: NetworkConfig, heads: HeadPlaces) -> list[LayerPlace]:
    """The layers of an attention policy head, on either body."""
    filters, (embedded, keys) = config.filters, policy_widths(config)
    return [
        layers("policy.embed", heads.embedding, "ip_pol", (embedded, filters)),
        layers("policy.query", heads.policy, "ip2_pol", (keys, embedded)),
        layers("policy.key", heads.policy, "ip3_pol", (keys, embedded)),
        LayerPlace("policy.promotion", heads.policy, ("ip4_pol_w",), (NUM_OFFSETS, keys)),
    ]


def position_heads(config: NetworkConfig, heads: HeadPlaces) -> list[LayerPlace]:
    """The layers of the value head and of any moves-left head, on either body."""
    rows = [("value", heads.value, "val", config.value_channels, config.value_hidden, 3)]
    if config.moves_left:
        rows.append(("moves_left", (), "mov", config.moves_left_channels, config.moves_left_hidden, 1))
    places: list[LayerPlace] = []
    for prefix, path, name, channels, hidden, outputs in rows:
        if config.body == "residual":
            places.append(conv_norm(f"{prefix}.reduce", (prefix,), (channels, config.filters, 1, 1)))
        else:
            places.append(layers(f"{prefix}.reduce", path, f"ip_{name}", (channels, config.filters)))
        places.append(layers(f"{prefix}.hidden", path, f"ip1_{name}", (hidden, channels * SQUARES)))
        places.append(layers(f"{prefix}.output", path, f"ip2_{name}", (outputs, hidden)))
    return places
