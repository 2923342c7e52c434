"""The forward pass of a network with an attention body on the CPU: oneDNN's layers and the core's kernels.

Fully connected layers are convolutions (onednn.py says why). What lies between them is the core's
(core_kernels.py): attention, mish, and sums with the skip and their LayerNorm. Folded into weights: the scale
of scores, DeepNorm's factor of the branches, the map of squares that an embedding shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from alphazero.network.inference.core_kernels import add_and_normalise, attend, mish_
from alphazero.network.inference.forward import fold_tensors
from alphazero.network.inference.onednn import Packed, pack
from alphazero.network.model.attention import (
    DENSE_EPS,
    MAP_EPS,
    PIECE_PLANES,
    SMOLGEN_EPS,
    branch_scale,
    reached_squares,
)
from alphazero.network.model.heads import logits_of_moves
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, Q = H * W squares, R = B * Q rows, P planes, C channels of the body, N heads, G numbers
# of smolgen per head, L numbers of the policy head, X numbers of some kind, 3 = win, draw, loss.

FUSED = {"none": "none", "relu": "relu", "relu_2": "relu", "swish": "swish", "mish": "none"}  # by oneDNN


@dataclass(frozen=True)
class Layer:
    """A fully connected layer and the activation behind it."""

    packed: Packed
    activation: str

    def __call__(self, rows_RX: Tensor) -> Tensor:
        """[R, X] -> [R, X']."""
        return self._finished(self.packed.of_rows(rows_RX, FUSED[self.activation]))

    def with_added(self, rows_RX: Tensor, added_RX: Tensor) -> Tensor:
        """The same with numbers added before the activation, which is mish or relu."""
        sums_RX = self.packed.of_rows_added(rows_RX, added_RX, FUSED[self.activation])
        return self._finished(sums_RX)

    def _finished(self, rows_RX: Tensor) -> Tensor:
        if self.activation == "relu_2":
            return rows_RX.square_()
        return mish_(rows_RX) if self.activation == "mish" else rows_RX


@dataclass(frozen=True)
class Norm:
    """A LayerNorm; weights f32."""

    weight_C: Tensor
    bias_C: Tensor
    eps: float

    def __call__(self, rows_RC: Tensor) -> Tensor:
        """[R, C] -> [R, C]."""
        weight_C, bias_C = self.weight_C.to(rows_RC.dtype), self.bias_C.to(rows_RC.dtype)
        return functional.layer_norm(rows_RC, weight_C.shape, weight_C, bias_C, self.eps)

    def of_sum(self, skip_RC: Tensor, branch_RC: Tensor) -> Tensor:
        """Of skip + branch; the branch is used up."""
        return add_and_normalise(skip_RC, branch_RC, self.weight_C, self.bias_C, self.eps)


@dataclass(frozen=True)
class PackedFeedForward:
    """x = norm(x + f(x)) with the branch's factor in its weights."""

    first: Layer
    second: Layer
    norm: Norm

    def __call__(self, rows_RC: Tensor) -> Tensor:
        """[R, C] -> [R, C]."""
        return self.norm.of_sum(rows_RC, self.second(self.first(rows_RC)))


@dataclass(frozen=True)
class PackedSmolgen:
    """model.attention.Smolgen with the layer that all encoders share."""

    compress: Layer
    first: Layer
    ln1: Norm
    second: Layer
    ln2: Norm
    scores: Layer
    heads: int
    squares: int

    def __call__(self, rows_RC: Tensor) -> Tensor:
        """[R, C] -> scores [B, N, Q, Q], of which the queries are last."""
        batch_size = len(rows_RC) // self.squares
        hidden_BX = self.ln1(self.first(self.compress(rows_RC).view(batch_size, -1)))
        generated_BX = self.ln2(self.second(hidden_BX))
        scores_X = self.scores(generated_BX.view(batch_size * self.heads, -1))
        return scores_X.view(batch_size, self.heads, self.squares, self.squares)


@dataclass(frozen=True)
class PackedEncoder:
    """model.attention.Encoder; queries, keys and values are one layer."""

    projection: Layer
    smolgen: PackedSmolgen | None
    output: Layer
    norm: Norm
    ffn: PackedFeedForward
    no_scores_0NQQ: Tensor

    def __call__(self, rows_RC: Tensor) -> Tensor:
        """[R, C] -> [R, C]."""
        added_BNQQ = self.no_scores_0NQQ if self.smolgen is None else self.smolgen(rows_RC)
        projected_RX = self.projection(rows_RC)
        projected_BQX = projected_RX.view(-1, added_BNQQ.shape[2], projected_RX.shape[1])
        attended_RC = attend(projected_BQX, added_BNQQ).flatten(0, 1)
        return self.ffn(self.norm.of_sum(rows_RC, self.output(attended_RC)))


class OneDnnAttention:
    """AlphaZeroNet with an attention body on the CPU for batches of one size. See the head of this file."""

    def __init__(self, network: AlphaZeroNet, dtype: torch.dtype, batch_size: int) -> None:
        self.config, self.spec = network.config, network.spec
        self.squares = network.spec.board_height * network.spec.board_width
        self.dtype, self.batch_size = dtype, batch_size
        self.rows = batch_size * self.squares
        self.alpha = branch_scale(network.config.blocks)
        self.description = f"oneDNN layers and fused attention on cpu, {dtype}"
        self.load(fold_tensors(network.state_dict()))

    def __call__(self, planes_BPHW: Tensor) -> tuple[Tensor, Tensor]:
        """See ModuleForward."""
        rows_RC = self.embedding(planes_BPHW.permute(0, 2, 3, 1).reshape(self.rows, -1))
        for encoder in self.encoders:
            rows_RC = encoder(rows_RC)
        reduced_BX = self.value_reduce(rows_RC).view(self.batch_size, -1)
        return self.policy(rows_RC), self.value_output(self.value_hidden(reduced_BX))

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See ModuleForward; on the CPU nothing depends on addresses, so the layers are packed again."""
        named = {name: tensor.to("cpu", torch.float32) for name, tensor in folded.items()}
        activation = self.config.activation
        self.embedding = self._embedding(named)
        self.encoders = tuple(
            self._encoder(named, f"body.encoders.{number}") for number in range(self.config.blocks)
        )
        self.policy = self._policy(named)
        self.value_reduce = self._layer(named, "value.reduce", self.rows, activation)
        self.value_hidden = self._layer(named, "value.hidden", self.batch_size, activation)
        self.value_output = self._layer(named, "value.output", self.batch_size)

    def _embedding(self, named: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """Planes of the squares, [R, P], to tokens, [R, C]."""
        weight_CX, bias_C = (named[f"body.embedding.squares.{part}"] for part in ("weight", "bias"))
        planes = self.spec.num_planes
        squares = self._packed(weight_CX[:, :planes], bias_C, self.rows, self.config.activation)
        gated = self._gate(named)
        if self.config.embedding == "map":
            position_QC = reached_squares(self.spec) @ weight_CX[:, planes:].T
            position_RC = position_QC.to(self.dtype).repeat(self.batch_size, 1)
            return lambda rows_RP: gated(squares.with_added(rows_RP, position_RC))
        pieces = min(PIECE_PLANES, self.spec.num_bit_planes)
        positions = self._layer(named, "body.embedding.positions", self.batch_size)
        extra = self._packed(weight_CX[:, planes:], torch.zeros_like(bias_C), self.rows)
        norm = self._norm(named, "body.embedding.ln1", DENSE_EPS)
        ffn = self._feed_forward(named, "body.embedding", DENSE_EPS)

        def dense(rows_RP: Tensor) -> Tensor:
            extra_RX = positions(rows_RP[:, :pieces].reshape(self.batch_size, -1)).view(self.rows, -1)
            return ffn(gated(norm(squares.with_added(rows_RP, extra(extra_RX)))))

        return dense

    def _gate(self, named: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        if not self.config.gates:
            return lambda rows_RC: rows_RC
        factor_QC, term_QC = (
            named[f"body.embedding.gate.{part}_CQ"].T.to(self.dtype).contiguous()
            for part in ("factor", "term")
        )
        return lambda rows_RC: torch.addcmul(
            term_QC, rows_RC.view(self.batch_size, *factor_QC.shape), factor_QC
        ).flatten(0, 1)

    def _encoder(self, named: Mapping[str, Tensor], name: str) -> PackedEncoder:
        heads, squares = self.config.heads, self.squares
        scale = (self.config.attention_width or self.config.filters) // heads
        parts = [
            (named[f"{name}.{part}.weight"] * factor, named[f"{name}.{part}.bias"] * factor)
            for part, factor in (("query", scale**-0.5), ("key", 1.0), ("value", 1.0))
        ]
        eps = DENSE_EPS if self.config.embedding == "dense" else MAP_EPS
        return PackedEncoder(
            self._packed(
                torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts]), self.rows
            ),
            self._smolgen(named, f"{name}.smolgen") if self.config.smolgen_channels else None,
            self._layer(named, f"{name}.output", self.rows, factor=self.alpha),
            self._norm(named, f"{name}.ln1", eps),
            self._feed_forward(named, name, eps),
            torch.empty((0, heads, squares, squares), dtype=self.dtype),
        )

    def _smolgen(self, named: Mapping[str, Tensor], name: str) -> PackedSmolgen:
        activation = self.config.smolgen_activation
        return PackedSmolgen(
            self._layer(named, f"{name}.compress", self.rows),
            self._layer(named, f"{name}.first", self.batch_size, activation),
            self._norm(named, f"{name}.ln1", SMOLGEN_EPS),
            self._layer(named, f"{name}.second", self.batch_size, activation),
            self._norm(named, f"{name}.ln2", SMOLGEN_EPS),
            self._scores(named["body.scores.weight"]),
            self.config.heads,
            self.squares,
        )

    def _scores(self, weight_XG: Tensor) -> Layer:
        """Key by key, as the core adds them; the weights have them query by query."""
        by_key_QQG = weight_XG.view(self.squares, self.squares, -1).transpose(0, 1)
        rows = self.batch_size * self.config.heads
        return self._packed(by_key_QQG.flatten(0, 1), torch.zeros(len(weight_XG)), rows)

    def _policy(self, named: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """The policy head without its gather: tokens [R, C] to [B, L]."""
        if self.config.policy_head == "convolution":
            hidden = self._layer(named, "policy.hidden", self.rows, self.config.activation)
            output = self._layer(named, "policy.output", self.rows)
            return lambda rows_RC: output(hidden(rows_RC)).view(self.batch_size, -1)
        embed = self._layer(named, "policy.embed", self.rows, self.config.activation)
        query, key = (self._layer(named, f"policy.{part}", self.rows) for part in ("query", "key"))
        promotion_OC = named["policy.promotion.weight"].to(self.dtype, copy=True)

        def all_moves(rows_RC: Tensor) -> Tensor:
            embedded_RX = embed(rows_RC)
            query_BQX, key_BQX = (
                layer(embedded_RX).view(self.batch_size, self.squares, -1) for layer in (query, key)
            )
            return logits_of_moves(query_BQX, key_BQX, promotion_OC, self.spec.board_width)

        return all_moves

    def _feed_forward(self, named: Mapping[str, Tensor], name: str, eps: float) -> PackedFeedForward:
        return PackedFeedForward(
            self._layer(named, f"{name}.ffn.first", self.rows, self.config.ffn_activation),
            self._layer(named, f"{name}.ffn.second", self.rows, factor=self.alpha),
            self._norm(named, f"{name}.ln2", eps),
        )

    def _norm(self, named: Mapping[str, Tensor], name: str, eps: float) -> Norm:
        return Norm(named[f"{name}.weight"].clone(), named[f"{name}.bias"].clone(), eps)

    def _layer(
        self,
        named: Mapping[str, Tensor],
        name: str,
        rows: int,
        activation: str = "none",
        factor: float = 1.0,
    ) -> Layer:
        """A layer without a bias has one of zeros."""
        weight_XX = named[f"{name}.weight"]
        bias_X = named.get(f"{name}.bias", torch.zeros(len(weight_XX)))
        return self._packed(weight_XX * factor, bias_X * factor, rows, activation)

    def _packed(self, weight_XX: Tensor, bias_X: Tensor, rows: int, activation: str = "none") -> Layer:
        shape = [1, weight_XX.shape[1], rows, 1]
        return Layer(pack(weight_XX[:, :, None, None], bias_X, 0, shape, self.dtype), activation)
