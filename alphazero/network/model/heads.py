"""The heads of the network (policy, value, moves left) and the convolution-norm pair all are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from alphazero.config import NetworkConfig
from alphazero.errors import ConfigError
from alphazero.games.spec import GameSpec
from alphazero.network.model.attention_policy import AttentionPolicyHead
from alphazero.network.model.batch_norm import BatchNorm
from alphazero.network.model.convolution import Convolution

# Shapes: B positions, C channels, H x W board, A policy indices, 3 = win, draw, loss of the mover.


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
        self.hidden = ConvNorm(config.filters, config.filters, 3)
        self.output = nn.Conv2d(config.filters, spec.policy_planes, 3, padding=1)
        # With its values even inside `torch.device("meta")`: it is a constant of the game, in no weights
        # file. Where the weights go, AlphaZeroNet.adopt takes it.
        policy_map_A = torch.tensor(spec.policy_map, dtype=torch.int64, device="cpu")
        self.register_buffer("policy_map_A", policy_map_A, persistent=False)

    def forward(self, tower_BCHW: Tensor) -> Tensor:
        """[B, filters, H, W] -> logits [B, A]."""
        planes_BCHW: Tensor = self.output(self.hidden(tower_BCHW, rectifies=True))
        return planes_BCHW.flatten(1).index_select(1, self.policy_map_A)


def make_policy_head(config: NetworkConfig, spec: GameSpec) -> PolicyHead | AttentionPolicyHead:
    """The head that the settings ask for. Raises ConfigError where the game has no such head."""
    if config.policy_head == "convolution":
        return PolicyHead(config, spec)
    if not spec.attention_map:
        raise ConfigError(
            f"policy_head attention: a move of {spec.name} does not go from a square to a square; "
            "expected convolution"
        )
    return AttentionPolicyHead(config, spec)


class ValueHead(nn.Module):
    """lc0's WDL value head: 1x1 conv + BN + ReLU, fully connected + ReLU, fully connected to three logits."""

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        squares = spec.board_height * spec.board_width
        self.reduce = ConvNorm(config.filters, config.value_channels, 1)
        self.hidden = nn.Linear(config.value_channels * squares, config.value_hidden)
        self.output = nn.Linear(config.value_hidden, 3)

    def forward(self, tower_BCHW: Tensor) -> Tensor:
        """[B, filters, H, W] -> logits [B, 3] of win, draw, loss for the side to move."""
        reduced_BCHW = self.reduce(tower_BCHW, rectifies=True)
        wdl_B3: Tensor = self.output(functional.relu(self.hidden(reduced_BCHW.flatten(1))))
        return wdl_B3


class MovesLeftHead(nn.Module):
    """lc0's moves-left head: as the value head, one output through a ReLU, in plies."""

    def __init__(self, config: NetworkConfig, spec: GameSpec) -> None:
        super().__init__()
        squares = spec.board_height * spec.board_width
        self.reduce = ConvNorm(config.filters, config.moves_left_channels, 1)
        self.hidden = nn.Linear(config.moves_left_channels * squares, config.moves_left_hidden)
        self.output = nn.Linear(config.moves_left_hidden, 1)

    def forward(self, tower_BCHW: Tensor) -> Tensor:
        """[B, filters, H, W] -> plies to the end of the game [B, 1], never negative."""
        reduced_BCHW = self.reduce(tower_BCHW, rectifies=True)
        return functional.relu(self.output(functional.relu(self.hidden(reduced_BCHW.flatten(1)))))
