"""The policy, value and moves-left heads, and the convolution with BatchNorm that all parts are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from alphazero.base.errors import ConfigError
from alphazero.games.registry import GameSpec
from alphazero.network.model.activations import ACTIVATIONS
from alphazero.network.model.layers import BatchNorm, Convolution
from alphazero.settings.sections import NetworkConfig

# Shapes: B positions, C channels, H x W board, Q = H * W squares, A policy indices, 3 = win, draw, loss.

PROMOTION_PIECES = 3  # queen, rook, bishop; a knight is the plain move
NUM_OFFSETS = PROMOTION_PIECES + 1
LINEAR_FILTERS = 4  # of LinearPolicyHead


class AttentionPolicyHead(nn.Module):
    """Every square asks (query) and answers (key); a move's logit is query(from) . key(to) / sqrt(C).

    A promotion's logit is that of the plain move and an offset that the key of the square it goes to gives
    for the piece, and one for any piece. Structure: lc0 src/neural/backends/blas/network_blas.cc
    (attn_policy_), lczero-training tf/tfprocess.py, POLICY_ATTENTION. On a residual tower embedding and keys
    are as wide as the tower.
    """

    policy_map_A: Tensor

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        embedded, keys = policy_widths(config)
        self.embed = nn.Linear(config.filters, embedded)
        self.query = nn.Linear(embedded, keys)
        self.key = nn.Linear(embedded, keys)
        self.promotion = nn.Linear(keys, NUM_OFFSETS, bias=False)
        self.activation = ACTIVATIONS[config.activation if config.body == "attention" else "selu"]
        self.width = spec.board_width
        register_policy_map(self, spec.attention_map)

    def forward(self, body: Tensor) -> Tensor:
        """[B, filters, H, W], or tokens [B, Q, filters] -> logits [B, A]."""
        return self.all_moves(body).index_select(1, self.policy_map_A)

    def all_moves(self, body: Tensor) -> Tensor:
        """Logits of every from and to, then of promotions, as GameSpec.attention_map counts them: [B, N]."""
        tokens_BQC = body.flatten(2).transpose(1, 2) if body.ndim == 4 else body
        embedded_BQC = self.activation(self.embed(tokens_BQC))
        return logits_of_moves(
            self.query(embedded_BQC), self.key(embedded_BQC), self.promotion.weight, self.width
        )


def logits_of_moves(query_BQC: Tensor, key_BQC: Tensor, promotion_OC: Tensor, width: int) -> Tensor:
    """[B, Q * Q + W * W * 3], contiguous: from each square to each, from file to file with each promotion.

    promotion_OC: AttentionPolicyHead.promotion's weight.
    """
    plain_BQQ = query_BQC @ key_BQC.transpose(1, 2) * query_BQC.shape[-1] ** -0.5
    offset_BOW = promotion_OC @ key_BQC[:, -width:].transpose(1, 2)
    offset_B3W = offset_BOW[:, :PROMOTION_PIECES] + offset_BOW[:, PROMOTION_PIECES:]
    # From the rank before the last one to the last one.
    pushed_BWW = plain_BQQ[:, -2 * width : -width, -width:]
    promoted_BWW3 = pushed_BWW[:, :, :, None] + offset_B3W.transpose(1, 2)[:, None]
    return torch.cat([plain_BQQ.flatten(1), promoted_BWW3.flatten(1)], dim=1)


def kernel_size(spec: GameSpec) -> int:
    """Of convolutions on the board; where it is one square they are fully connected layers."""
    return 3 if spec.num_squares > 1 else 1


class ConvNorm(nn.Module):
    """Convolution without bias, then BatchNorm; `fold` makes one biased convolution of an evaluated pair."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv: nn.Conv2d = Convolution(in_channels, out_channels, kernel_size)
        self.norm: nn.Module = BatchNorm(out_channels)

    def forward(self, input_BCHW: Tensor, *, rectifies: bool = False) -> Tensor:
        """[B, in_channels, H, W] -> [B, out_channels, H, W]; ReLU behind it where it `rectifies`."""
        convolved_BCHW: Tensor = self.conv(input_BCHW)
        if isinstance(self.norm, BatchNorm):
            normed_BCHW: Tensor = self.norm(convolved_BCHW, rectifies=rectifies)
            return normed_BCHW
        return functional.relu(convolved_BCHW) if rectifies else convolved_BCHW

    def added_to(self, skip_BCHW: Tensor, input_BCHW: Tensor) -> Tensor:
        """relu(skip + what the module makes of the input), [B, out_channels, H, W]."""
        # In place: it saves an activation a block, and nothing else reads the sum.
        return torch.relu_(skip_BCHW + self(input_BCHW))

    def fold(self) -> None:
        """Put the running statistics into the convolution, for good; only for inference."""
        if isinstance(self.norm, BatchNorm):
            self.conv = nn.utils.fuse_conv_bn_eval(self.conv, self.norm)
            self.norm = nn.Identity()


class PolicyHead(nn.Module):
    """lc0's convolutional policy head: 3x3 conv + BN + ReLU, 3x3 conv with bias, gather of the real moves.

    Structure: lc0 src/neural/backends/blas/network_blas.cc (conv_policy_), lczero-training
    tf/tfprocess.py construct_net, POLICY_CONVOLUTION.
    """

    policy_map_A: Tensor

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        size = kernel_size(spec)
        self.hidden = ConvNorm(config.filters, config.filters, size)
        self.output = nn.Conv2d(config.filters, spec.policy_planes, size, padding=size // 2)
        register_policy_map(self, spec.policy_map)

    def forward(self, tower_BCHW: Tensor) -> Tensor:
        """[B, filters, H, W] -> logits [B, A]."""
        planes_BCHW: Tensor = self.output(self.hidden(tower_BCHW, rectifies=True))
        return planes_BCHW.flatten(1).index_select(1, self.policy_map_A)


class LinearPolicyHead(nn.Module):
    """1x1 conv + BN + ReLU, then a layer with all moves, for moves that are no planes of squares.

    Structure: Silver et al. 2017 (AlphaGo Zero), Methods, policy head, with more filters.
    """

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        self.reduce = ConvNorm(config.filters, LINEAR_FILTERS, 1)
        self.output = nn.Linear(LINEAR_FILTERS * spec.num_squares, spec.policy_size)

    def forward(self, tower_BCHW: Tensor) -> Tensor:
        """[B, filters, H, W] -> logits [B, A]."""
        logits_BA: Tensor = self.output(self.reduce(tower_BCHW, rectifies=True).flatten(1))
        return logits_BA


class TokenPolicyHead(nn.Module):
    """Planes of moves from tokens, for games whose moves do not go from a square to a square."""

    policy_map_A: Tensor

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        self.hidden = nn.Linear(config.filters, policy_widths(config)[0])
        self.output = nn.Linear(self.hidden.out_features, spec.policy_planes)
        self.activation = ACTIVATIONS[config.activation]
        register_policy_map(self, spec.policy_map)

    def forward(self, tokens_BQC: Tensor) -> Tensor:
        """[B, Q, filters] -> logits [B, A]."""
        return self.planes(tokens_BQC).transpose(1, 2).flatten(1).index_select(1, self.policy_map_A)

    def planes(self, tokens_BQC: Tensor) -> Tensor:
        """Logits of each plane of each square: [B, Q, policy_planes]."""
        planes_BQP: Tensor = self.output(self.activation(self.hidden(tokens_BQC)))
        return planes_BQP


def register_policy_map(head: nn.Module, policy_map: tuple[int, ...]) -> None:
    """Give a head its policy_map_A, with its values even inside `torch.device("meta")`.

    It is a constant of the game, in no weights file. Where the weights go, AlphaZeroNet.adopt takes it.
    """
    policy_map_A = torch.tensor(policy_map, dtype=torch.int64, device="cpu")
    head.register_buffer("policy_map_A", policy_map_A, persistent=False)


class PositionHead(nn.Module):
    """lc0's value and moves-left heads: a layer per square (1x1 conv + BN on a tower), then two in all."""

    def __init__(
        self, config: NetworkConfig, spec: GameSpec, channels: int, hidden: int, outputs: int
    ) -> None:
        super().__init__()
        self.is_on_tower = config.body == "residual"
        self.reduce: nn.Module = (
            ConvNorm(config.filters, channels, 1) if self.is_on_tower else nn.Linear(config.filters, channels)
        )
        self.hidden = nn.Linear(channels * spec.board_height * spec.board_width, hidden)
        self.output = nn.Linear(hidden, outputs)
        self.gives_plies = outputs == 1
        self.activation = ACTIVATIONS["relu" if self.is_on_tower else config.activation]

    def forward(self, body: Tensor) -> Tensor:
        """[B, filters, H, W], or tokens [B, Q, filters] -> [B, outputs].

        Three outputs are logits of win, draw, loss for the side to move, one is plies to the end of the game,
        never negative.
        """
        if self.is_on_tower:
            reduced = self.reduce(body, rectifies=True)
        else:
            reduced = self.activation(self.reduce(body))
        output_BX: Tensor = self.output(self.activation(self.hidden(reduced.flatten(1))))
        return functional.relu(output_BX) if self.gives_plies else output_BX


def policy_widths(config: NetworkConfig) -> tuple[int, int]:
    """Channels of the policy head's embedding, and of its queries and keys."""
    if config.body == "residual":
        return config.filters, config.filters
    embedded = config.policy_width or config.filters
    return embedded, config.policy_key_width or embedded


def make_policy_head(
    config: NetworkConfig, spec: GameSpec
) -> PolicyHead | LinearPolicyHead | TokenPolicyHead | AttentionPolicyHead:
    """The head that the settings ask for. Raises ConfigError where the game has no such head."""
    if config.policy_head == "attention":
        if not spec.attention_map:
            raise ConfigError(
                f"policy_head attention: a move of {spec.name} does not go from a square to a square; "
                "expected convolution"
            )
        return AttentionPolicyHead(config, spec)
    if config.body == "residual":
        return PolicyHead(config, spec) if spec.policy_planes else LinearPolicyHead(config, spec)
    if not spec.policy_planes or spec.num_squares == 1:
        raise ConfigError(
            f"body attention: the moves of {spec.name} are no planes of squares; expected residual"
        )
    if spec.attention_map:
        raise ConfigError(
            f"policy_head convolution: expected attention for an attention body that plays {spec.name}"
        )
    return TokenPolicyHead(config, spec)
