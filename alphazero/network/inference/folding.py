"""Weights for inference: BatchNorm put into the convolutions, of a network or of tensors by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import Tensor
from torch.nn.utils.fusion import fuse_conv_bn_weights

from alphazero.network.model.batch_norm import BATCH_NORM_EPS
from alphazero.network.model.heads import ConvNorm
from alphazero.network.model.resnet import AlphaZeroNet

CONV, NORM = ".conv.weight", ".norm."
# BatchNorm counts its batches; nothing is computed from that.
COUNTER = "num_batches_tracked"
# The head that search does not ask.
UNUSED_HEAD = "moves_left."


def fold_batch_norm(network: AlphaZeroNet) -> AlphaZeroNet:
    """A copy of the network in eval mode with every BatchNorm folded into its convolution."""
    folded = copy.deepcopy(network).eval().requires_grad_(False)
    for module in list(folded.modules()):
        if isinstance(module, ConvNorm):
            module.fold()
    return folded


def fold_tensors(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of an AlphaZeroNet, floats on one device, to that of fold_batch_norm's copy, f32.

    Without the moves-left head. Raises KeyError when a convolution's BatchNorm is not complete.
    """
    folded: dict[str, Tensor] = {}
    for name, tensor in named.items():
        if NORM in name or name.endswith(COUNTER) or name.startswith(UNUSED_HEAD):
            continue
        if name.endswith(CONV):
            prefix = name.removesuffix(CONV)
            gamma, beta, mean, variance = (
                named[f"{prefix}{NORM}{part}"].detach().float()
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            weight, bias = fuse_conv_bn_weights(
                tensor.detach().float(), None, mean, variance, BATCH_NORM_EPS, gamma, beta
            )
            folded[name], folded[f"{prefix}.conv.bias"] = weight.detach(), bias.detach()
        else:
            folded[name] = tensor.detach().float()
    return folded


def check_fits(network_tensors: Mapping[str, Tensor], named: Mapping[str, Tensor]) -> None:
    """Raises ValueError, one line, when `named` is not a state dict of the same shapes."""
    for name, wanted in network_tensors.items():
        if name.endswith(COUNTER) or name.startswith(UNUSED_HEAD):
            continue
        if name not in named:
            raise ValueError(f"{name}: missing from the new weights")
        if named[name].shape != wanted.shape:
            raise ValueError(f"{name}: shape {list(named[name].shape)}, expected {list(wanted.shape)}")
    for name in named:
        if name not in network_tensors:
            raise ValueError(f"{name}: not part of this network")
