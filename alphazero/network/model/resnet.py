"""The network: a residual tower with optional squeeze-excitation, or an attention body, and lc0's heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from alphazero.base.errors import ConfigError
from alphazero.games.registry import GameSpec
from alphazero.network.model.attention import (
    AttentionBody,
    OtherHeads,
    Run,
    initialise_body,
    run_part,
)
from alphazero.network.model.heads import ConvNorm, PositionHead, kernel_size, make_policy_head
from alphazero.network.model.layers import SqueezeExcitation
from alphazero.settings.sections import NetworkConfig

# Shapes: B positions, C channels, H x W board, A policy indices, 3 = win, draw, loss of the mover.


class NetworkOutput(NamedTuple):
    """The network's outputs for B positions, from the point of view of the side to move.

    policy_BA: logits over all A policy indices, legal or not.
    wdl_B3: logits of win, draw, loss.
    moves_left_B1: plies to the end of the game, or None without that head.
    """

    policy_BA: Tensor
    wdl_B3: Tensor
    moves_left_B1: Tensor | None


class ResidualBlock(nn.Module):
    """conv-BN-ReLU-conv-BN-[SE]-add-ReLU (He et al. 2016; AlphaZero; lc0)."""

    def __init__(self, filters: int, se_units: int, size: int = 3) -> None:
        super().__init__()
        self.first = ConvNorm(filters, filters, size)
        self.second = ConvNorm(filters, filters, size)
        self.se = SqueezeExcitation(filters, se_units) if se_units else None

    def forward(self, input_BCHW: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]."""
        branch_BCHW = self.first(input_BCHW, rectifies=True)
        if self.se is not None:
            return self.se.added_to(input_BCHW, self.second(branch_BCHW))
        return self.second.added_to(input_BCHW, branch_BCHW)


class AlphaZeroNet(nn.Module):
    """Policy, value and optionally moves left of positions of one game.

    Weights are drawn from `generator` (torch's global one if None), see `initialise`.
    Raises ConfigError when se_ratio does not divide filters, or the number of heads.
    """

    def __init__(
        self, config: NetworkConfig, spec: GameSpec, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.spec = spec
        if config.body == "attention":
            self.body = AttentionBody(config, spec)
        else:
            se_units, size = squeeze_units(config), kernel_size(spec)
            self.input = ConvNorm(spec.num_planes, config.filters, size)
            self.blocks = nn.Sequential(
                *(ResidualBlock(config.filters, se_units, size) for _ in range(config.blocks))
            )
        self.policy = make_policy_head(config, spec)
        self.value = PositionHead(config, spec, config.value_channels, config.value_hidden, 3)
        self.moves_left: PositionHead | None = None
        if config.moves_left:
            channels, hidden = config.moves_left_channels, config.moves_left_hidden
            self.moves_left = PositionHead(config, spec, channels, hidden, 1)
        if config.other_heads:
            self.other_heads = OtherHeads(config.other_heads)
        initialise(self, generator)

    def forward(self, planes_BCHW: Tensor, run: Run = run_part) -> NetworkOutput:
        """Input planes [B, num_planes, H, W] (planes.expand_planes) to NetworkOutput.

        run: how the heads and the parts of an attention body are called.
        """
        body = self.before_heads(planes_BCHW, run)
        moves_left_B1 = None if self.moves_left is None else run(self.moves_left, body)
        return NetworkOutput(run(self.policy, body), run(self.value, body), moves_left_B1)

    def before_heads(self, planes_BCHW: Tensor, run: Run = run_part) -> Tensor:
        """What the heads see: [B, filters, H, W], of an attention body tokens [B, H * W, filters]."""
        if self.config.body == "attention":
            tokens_BQC: Tensor = self.body(planes_BCHW, run)
            return tokens_BQC
        tower_BCHW: Tensor = self.blocks(self.input(planes_BCHW, rectifies=True))
        return tower_BCHW

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Make these tensors the weights and buffers, without a copy; of a network made on "meta" too.

        They lie on one device. Constants of the game, which are in no state dict, go there as well.
        """
        self.load_state_dict(dict(tensors), assign=True)
        self.to(next(self.parameters()).device)

    def parameter_count(self) -> int:
        """Trained numbers; BatchNorm's running statistics are not among them."""
        return sum(parameter.numel() for parameter in self.parameters())


def squeeze_units(config: NetworkConfig) -> int:
    """Units of the squeeze of each block; 0 is no squeeze-excitation. Raises ConfigError."""
    if config.se_ratio == 0:
        return 0
    if config.filters % config.se_ratio:
        raise ConfigError(
            f"se_ratio {config.se_ratio}: must divide filters, which is {config.filters} (0 is none)"
        )
    return config.filters // config.se_ratio


@torch.no_grad()
def initialise(network: nn.Module, generator: torch.Generator | None) -> None:
    """Draw all weights.

    Convolutions before BatchNorm: He et al. 2015 (arXiv:1502.01852) eq. 10, normal, fan in. All other
    layers: Glorot normal, as lczero-training (tf/tfprocess.py, kernel_initializer) has everywhere.
    Biases 0. BatchNorm: gamma 1, beta 0, but gamma 0 where a residual branch ends, so that each block
    starts as the identity (Goyal et al. 2017, arXiv:1706.02677, 5.1).
    """
    if next(network.parameters()).is_meta:
        return  # no numbers; drawing them there would import torch's compiler, more than a second
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            if isinstance(module, nn.Conv2d) and module.bias is None:
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            else:
                nn.init.xavier_normal_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    for module in network.modules():
        if isinstance(module, ResidualBlock) and isinstance(module.second.norm, nn.BatchNorm2d):
            nn.init.zeros_(module.second.norm.weight)
        elif isinstance(module, AttentionBody):
            initialise_body(module)
