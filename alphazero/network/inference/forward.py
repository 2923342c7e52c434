"""A network's forward pass for inference by its own modules, on CUDA or any CPU, with BatchNorm folded."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.fusion import fuse_conv_bn_weights

from alphazero.network.model.attention import run_part
from alphazero.network.model.heads import AttentionPolicyHead, ConvNorm, LinearPolicyHead, TokenPolicyHead
from alphazero.network.model.layers import BATCH_NORM_EPS
from alphazero.network.model.resnet import AlphaZeroNet

CONV, NORM = ".conv.weight", ".norm."
# BatchNorm counts its batches; nothing is computed from that.
COUNTER = "num_batches_tracked"
# The head that search does not ask.
UNUSED_HEAD = "moves_left."


def fold_batch_norm(network: AlphaZeroNet) -> AlphaZeroNet:
    """A copy of the network on the CPU, in eval mode, with every BatchNorm folded into its convolution."""
    folded = copy.deepcopy(network).cpu().eval().requires_grad_(False)
    for module in list(folded.modules()):
        if isinstance(module, ConvNorm):
            module.fold()
    return folded


def fold_tensors(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of an AlphaZeroNet, floats on one device, to that of fold_batch_norm's copy, f32, there.

    The same bits on every device: roots, which a GPU rounds otherwise, are taken on the CPU. Without the
    moves-left head. Raises KeyError when a convolution's BatchNorm is not complete.
    """
    folded: dict[str, Tensor] = {}
    for name, tensor in named.items():
        if NORM in name or name.endswith(COUNTER) or name.startswith(UNUSED_HEAD):
            continue
        if name.endswith(CONV):
            prefix = name.removesuffix(CONV)
            gamma, beta, mean, variance = (
                named[f"{prefix}{NORM}{part}"].detach().float().cpu()
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            ones_C111 = torch.ones(len(gamma), 1, 1, 1)
            scale_C111, bias_C = fuse_conv_bn_weights(
                ones_C111, None, mean, variance, BATCH_NORM_EPS, gamma, beta
            )
            folded[name] = tensor.detach().float() * scale_C111.detach().to(tensor.device)
            folded[f"{prefix}.conv.bias"] = bias_C.detach().to(tensor.device)
        else:
            folded[name] = tensor.detach().float()
    return folded


# Shapes: B positions, C channels, H x W board, L numbers of the policy head, 3 = win, draw, loss.


class Forward(Protocol):
    """What evaluates a network with BatchNorm folded, and can take new weights; see ModuleForward."""

    description: str

    def __call__(self, planes_BCHW: Tensor, /) -> tuple[Tensor, Tensor]:
        """Planes to policy and WDL."""

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """Take new weights."""


class ModuleForward:
    """A network's modules, channels last, in one precision; new weights keep the addresses of the old ones.

    remark: for the description. kernels: of an attention body (AttentionBody.run_by).
    """

    def __init__(
        self,
        network: AlphaZeroNet,
        device: torch.device,
        dtype: torch.dtype,
        remark: str = "",
        kernels: str = "",
    ) -> None:
        folded = fold_batch_norm(network)
        folded.moves_left = None
        folded.to(device=device, dtype=dtype)
        self.network = folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        is_attention = network.config.body == "attention"
        self.run_parts = self.network.body.run_by(kernels) if is_attention else run_part
        how = f"{kernels} operators" if self.run_parts is not run_part else "PyTorch operators"
        self.description = f"{how} on {device.type}, {dtype}{remark}"

    def __call__(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Planes, channels last, to what the policy head gives, [B, L] contiguous, and logits of WDL [B, 3].

        program.policy_places gives the place in L of a policy index.
        """
        network = self.network
        body = network.before_heads(planes_BCHW, self.run_parts)
        # The policy head without its gather: that comes with the one of the legal moves.
        if isinstance(network.policy, AttentionPolicyHead):
            return network.policy.all_moves(body), network.value(body)
        if isinstance(network.policy, TokenPolicyHead):
            return network.policy.planes(body).flatten(1), network.value(body)
        if isinstance(network.policy, LinearPolicyHead):
            return network.policy(body), network.value(body)
        policy_BPHW = network.policy.output(network.policy.hidden(body, rectifies=True))
        return policy_BPHW.permute(0, 2, 3, 1).flatten(1).contiguous(), network.value(body)

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """Take new weights, as fold_tensors gives them."""
        own = dict(self.network.named_parameters())
        for name, tensor in folded.items():
            own[name].copy_(tensor)
