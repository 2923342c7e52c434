"""The attention body: a token per square through encoders, as lc0 evaluates it.

Structure and constants: lc0 src/neural/backends/blas/network_blas.cc (ForwardEncoderLayer and the embedding
before it). An encoder normalises after each addition and scales its branches as DeepNorm does (Wang et al.
2022, arXiv:2203.00555); smolgen adds scores that are generated from the whole position
(lczero.org/blog/2024/02/transformer-progress).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from alphazero.base.errors import ConfigError
from alphazero.base.text import shortened
from alphazero.games.registry import GameSpec
from alphazero.network.model.activations import ACTIVATIONS
from alphazero.settings.sections import NetworkConfig

# Shapes: B positions, P planes, H x W board, Q = H * W squares, C channels of the body, N heads, D channels
# of a head, G numbers of smolgen per head.

PIECE_PLANES = 12  # of the newest position; the dense embedding shows them to every square
SMOLGEN_EPS = DENSE_EPS = 1e-3
MAP_EPS = 1e-6


# What may compute an attention body beside PyTorch's operators: each part compiled by torch.compile, with the
# fused attention of PyTorch, or with plain products that the compiler joins with what is around them.
COMPILED, COMPILED_PLAIN = "compiled", "compiled+plain"

Run = Callable[..., Tensor]  # a part of the network and its inputs to its output


def run_part(part: nn.Module, *inputs: Any) -> Tensor:  # noqa: ANN401 - as the part's
    """The part's output, by PyTorch's operators."""
    output: Tensor = part(*inputs)
    return output


def compiled_run() -> Run:
    """run_part with every part compiled, for each shape of its inputs; encoders share their code."""
    compiled: dict[nn.Module, Callable[..., Tensor]] = {}

    def run(part: nn.Module, *inputs: Any) -> Tensor:  # noqa: ANN401 - as the part's
        if part not in compiled:
            compiled[part] = torch.compile(part.forward, dynamic=False)
        return compiled[part](*inputs)

    return run


class FeedForward(nn.Module):
    """Two layers with an activation between them, for each square."""

    def __init__(self, channels: int, width: int, activation: str) -> None:
        super().__init__()
        self.first = nn.Linear(channels, width)
        self.second = nn.Linear(width, channels)
        self.activation = ACTIVATIONS[activation]

    def forward(self, input_BQC: Tensor) -> Tensor:
        """[B, Q, C] -> [B, Q, C]."""
        output_BQC: Tensor = self.second(self.activation(self.first(input_BQC)))
        return output_BQC


class Smolgen(nn.Module):
    """What a position adds to the scores of each head, but for the last layer, which all encoders share."""

    def __init__(self, config: NetworkConfig, squares: int) -> None:
        super().__init__()
        hidden, generated = config.smolgen_hidden, config.heads * config.smolgen_size
        self.compress = nn.Linear(config.filters, config.smolgen_channels, bias=False)
        self.first = nn.Linear(squares * config.smolgen_channels, hidden)
        self.ln1 = nn.LayerNorm(hidden, eps=SMOLGEN_EPS)
        self.second = nn.Linear(hidden, generated)
        self.ln2 = nn.LayerNorm(generated, eps=SMOLGEN_EPS)
        self.heads = config.heads
        self.activation = ACTIVATIONS[config.smolgen_activation]

    def forward(self, input_BQC: Tensor) -> Tensor:
        """[B, Q, C] -> [B, N, G], from which the last layer makes scores."""
        compressed_BX = self.compress(input_BQC).flatten(1)
        hidden_BX = self.ln1(self.activation(self.first(compressed_BX)))
        generated_BX: Tensor = self.ln2(self.activation(self.second(hidden_BX)))
        return generated_BX.view(generated_BX.shape[0], self.heads, -1)  # not len(): ONNX would keep it


class Encoder(nn.Module):
    """Attention between the squares, then a feed-forward layer; x = norm(x + alpha f(x)) after both."""

    def __init__(self, config: NetworkConfig, squares: int) -> None:
        super().__init__()
        channels, width = config.filters, config.attention_width or config.filters
        eps = DENSE_EPS if config.embedding == "dense" else MAP_EPS
        self.query = nn.Linear(channels, width)
        self.key = nn.Linear(channels, width)
        self.value = nn.Linear(channels, width)
        self.smolgen = Smolgen(config, squares) if config.smolgen_channels else None
        self.output = nn.Linear(width, channels)
        self.ln1 = nn.LayerNorm(channels, eps=eps)
        self.ffn = FeedForward(channels, config.ffn_width, config.ffn_activation)
        self.ln2 = nn.LayerNorm(channels, eps=eps)
        self.heads = config.heads
        self.alpha = branch_scale(config.blocks)
        self.attends_plainly = False

    def forward(self, input_BQC: Tensor, scores_of: nn.Linear | None, recomputes_scores: bool) -> Tensor:
        """[B, Q, C] -> [B, Q, C]. scores_of: smolgen's last layer."""
        # The three layers as one product: their input is read once, and it has one gradient.
        layers = self.query, self.key, self.value
        weight_XC = torch.cat([layer.weight for layer in layers])
        projected_BQX = functional.linear(input_BQC, weight_XC, torch.cat([layer.bias for layer in layers]))
        projected_BQ3ND = torch.unflatten(projected_BQX, 2, (len(layers), self.heads, -1))
        query_BNQD, key_BNQD, value_BNQD = projected_BQ3ND.permute(2, 0, 3, 1, 4).unbind()
        generated_BNG = None if self.smolgen is None else self.smolgen(input_BQC)
        is_plain = self.attends_plainly or input_BQC.device.type == "cpu"  # which is faster there
        parts = (query_BNQD, key_BNQD, value_BNQD, generated_BNG, scores_of, is_plain)
        attended_BNQD = recomputed(attend, *parts) if recomputes_scores else attend(*parts)
        branch_BQC = self.output(attended_BNQD.transpose(1, 2).flatten(2))
        middle_BQC = self.ln1(input_BQC + self.alpha * branch_BQC)
        output_BQC: Tensor = self.ln2(middle_BQC + self.alpha * self.ffn(middle_BQC))
        return output_BQC


def attend(
    query_BNQD: Tensor,
    key_BNQD: Tensor,
    value_BNQD: Tensor,
    generated_BNG: Tensor | None,
    scores_of: nn.Linear | None,
    is_plain: bool,
) -> Tensor:
    """Each square's mean of all squares' values, [B, N, Q, D], weighted by the softmax of its scores."""
    scores_BNQQ = None
    if generated_BNG is not None:
        assert scores_of is not None
        scores_BNQQ = scores_of(generated_BNG).unflatten(2, (query_BNQD.shape[2], -1))
    if is_plain:
        return attend_plainly(query_BNQD, key_BNQD, value_BNQD, scores_BNQQ)
    return functional.scaled_dot_product_attention(query_BNQD, key_BNQD, value_BNQD, attn_mask=scores_BNQQ)


def attend_plainly(
    query_BNQD: Tensor, key_BNQD: Tensor, value_BNQD: Tensor, scores_BNQQ: Tensor | None
) -> Tensor:
    """scaled_dot_product_attention by matrix products and a softmax."""
    # The query is scaled, not the products, which could leave the range of fp16.
    products_BNQQ = query_BNQD * query_BNQD.shape[-1] ** -0.5 @ key_BNQD.transpose(2, 3)
    if scores_BNQQ is not None:
        products_BNQQ = products_BNQQ + scores_BNQQ
    attended_BNQD: Tensor = products_BNQQ.softmax(3).to(value_BNQD.dtype) @ value_BNQD
    return attended_BNQD


def recomputed(function: Run, *parts: Any) -> Tensor:  # noqa: ANN401 - as the function's
    """The function's result; for the backward pass its inputs alone are kept, and the rest computed again."""
    # No layer here draws random numbers, and their state cannot be read while a CUDA graph is captured.
    result: Tensor = checkpoint(function, *parts, use_reentrant=False, preserve_rng_state=False)
    return result


def branch_scale(encoders: int) -> float:
    """DeepNorm's alpha, for the branch instead of the skip, as lc0 has it."""
    return float((2 * encoders) ** -0.25)


class InputGate(nn.Module):
    """A factor and a term for each channel of each square."""

    def __init__(self, channels: int, squares: int) -> None:
        super().__init__()
        self.factor_CQ = nn.Parameter(torch.empty(channels, squares))
        self.term_CQ = nn.Parameter(torch.empty(channels, squares))

    def forward(self, input_BQC: Tensor) -> Tensor:
        """[B, Q, C] -> [B, Q, C]."""
        return input_BQC * self.factor_CQ.T + self.term_CQ.T


class Embedding(nn.Module):
    """Planes to tokens. Every square also sees where it is (map) or where all pieces are (dense).

    map: the squares that a queen or a knight reaches from it on an empty board (lc0's kPosEncoding). dense: a
    layer of PIECE_PLANES of all squares gives numbers to each square.
    """

    position_QX: Tensor | None

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        self.is_dense = config.embedding == "dense"
        channels, squares = config.filters, spec.board_height * spec.board_width
        self.pieces = min(PIECE_PLANES, spec.num_bit_planes)
        if self.is_dense:
            extra = config.embedding_width
            self.positions = nn.Linear(squares * self.pieces, squares * extra)
            self.ln1 = nn.LayerNorm(channels, eps=DENSE_EPS)
            width = config.embedding_ffn_width or config.ffn_width
            self.ffn = FeedForward(channels, width, config.ffn_activation)
            self.ln2 = nn.LayerNorm(channels, eps=DENSE_EPS)
            position_QX = None
        else:
            position_QX = reached_squares(spec)
            extra = position_QX.shape[1]
        # Beside the weights: a constant of the game, with its values even on "meta".
        self.register_buffer("position_QX", position_QX, persistent=False)
        self.squares = nn.Linear(spec.num_planes + extra, channels)
        self.gate = InputGate(channels, squares) if config.gates else None
        self.activation = ACTIVATIONS[config.activation]
        self.alpha = branch_scale(config.blocks)

    def forward(self, planes_BPHW: Tensor) -> Tensor:
        """[B, P, H, W] -> [B, Q, C]."""
        tokens_BQP = planes_BPHW.flatten(2).transpose(1, 2)
        if self.position_QX is None:
            pieces_BX = tokens_BQP[:, :, : self.pieces].flatten(1)
            extra_BQX = self.positions(pieces_BX).unflatten(1, (tokens_BQP.shape[1], -1))
        else:
            extra_BQX = self.position_QX.to(tokens_BQP.dtype).expand(tokens_BQP.shape[0], -1, -1)
        embedded_BQC = self.activation(self.squares(torch.cat([tokens_BQP, extra_BQX], dim=2)))
        if self.is_dense:
            embedded_BQC = self.ln1(embedded_BQC)
        if self.gate is not None:
            embedded_BQC = self.gate(embedded_BQC)
        if self.is_dense:
            embedded_BQC = self.ln2(embedded_BQC + self.alpha * self.ffn(embedded_BQC))
        return embedded_BQC


def reached_squares(spec: GameSpec) -> Tensor:
    """For each square -1 at itself, 1 where a queen or a knight goes from there, else 0: [Q, Q]."""
    rank_Q = torch.arange(spec.board_height, device="cpu").repeat_interleave(spec.board_width)
    file_Q = torch.arange(spec.board_width, device="cpu").repeat(spec.board_height)
    ranks_QQ = (rank_Q[:, None] - rank_Q).abs()
    files_QQ = (file_Q[:, None] - file_Q).abs()
    reached_QQ = (ranks_QQ == 0) | (files_QQ == 0) | (ranks_QQ == files_QQ) | (ranks_QQ * files_QQ == 2)
    return reached_QQ.float() - 2 * torch.eye(len(rank_Q), device="cpu")


class AttentionBody(nn.Module):
    """Embedding and encoders. Raises ConfigError where the heads do not divide the channels.

    checkpointing: what the backward pass computes again (TrainingConfig.activation_checkpointing).
    trained_by: kernels of training on GPUs; "" and "operators" are PyTorch's operators.
    """

    trained_by = ""

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        width = config.attention_width or config.filters
        if width % config.heads:
            raise ConfigError(f"heads {config.heads}: expected a divisor of the {width} channels (filters)")
        squares = spec.board_height * spec.board_width
        self.embedding = Embedding(config, spec)
        self.encoders = nn.ModuleList(Encoder(config, squares) for _ in range(config.blocks))
        self.scores = (
            nn.Linear(config.smolgen_size, squares**2, bias=False) if config.smolgen_channels else None
        )
        self.checkpointing = "none"

    def run_by(self, kernels: str) -> Run:
        """Attend by these kernels from now on; how parts are to be called for it."""
        for encoder in self.encoders:
            assert isinstance(encoder, Encoder)
            encoder.attends_plainly = kernels == COMPILED_PLAIN
        return compiled_run() if kernels in (COMPILED, COMPILED_PLAIN) else run_part

    def forward(self, planes_BPHW: Tensor, run: Run = run_part) -> Tensor:
        """[B, P, H, W] -> tokens [B, Q, C]."""
        tokens_BQC = run(self.embedding, planes_BPHW)
        for encoder in self.encoders:
            parts = (encoder, tokens_BQC, self.scores, self.checkpointing == "scores")
            tokens_BQC = recomputed(run, *parts) if self.checkpointing == "encoders" else run(*parts)
        return tokens_BQC


class OtherHeads(nn.Module):
    """Layers of an imported network's other heads, flat, by name: kept with the weights, never computed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        for name, size in sizes_of(text).items():
            self.register_buffer(name, torch.zeros(size))


def sizes_of(other_heads: str) -> dict[str, int]:
    """NetworkConfig.other_heads as the size of each layer. Raises ConfigError."""
    sizes = {}
    for entry in other_heads.split():
        name, _, size = entry.partition("=")
        if not re.fullmatch(r"[a-z0-9_/]{1,64}=[0-9]{1,10}", entry) or name in sizes:
            raise ConfigError(f"other_heads {shortened(entry)}: expected NAME=SIZE, each name once")
        sizes[name] = int(size)
    return sizes


@torch.no_grad()
def initialise_body(body: AttentionBody) -> None:
    """DeepNorm's beta for the layers in its branches (table 2, encoder-only); norms and gates change nothing.

    All layers have been drawn, Glorot normal with biases 0.
    """
    beta = (8 * len(body.encoders)) ** -0.25
    for encoder in body.encoders:
        assert isinstance(encoder, Encoder)
        for layer in (encoder.value, encoder.output, encoder.ffn.first, encoder.ffn.second):
            layer.weight.mul_(beta)
    for module in body.modules():
        if isinstance(module, InputGate):
            nn.init.ones_(module.factor_CQ)
            nn.init.zeros_(module.term_CQ)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
