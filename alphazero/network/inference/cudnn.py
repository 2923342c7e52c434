"""The forward pass on CUDA with cuDNN's fused convolutions: bias, residual sum and ReLU in the same call.

cuDNN computes max(0, convolution + alpha * addend + bias) and rounds once (cuDNN developer guide, fused
operation graphs). PyTorch's operators write and read the whole tower three times a block more, and round each
time: in their own precision both are as near to the exact result, and not equal to the bit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from alphazero.network.inference.forward import ModuleForward
from alphazero.network.model.heads import ConvNorm
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, C channels, H x W board.

# Fused kernels take channels in groups of so many: 16 bytes of bf16. Planes of small games are fewer.
CHANNEL_GROUP = 8
UNSCALED = 1.0


class CudnnForward(ModuleForward):
    """The modules with every convolution before a ReLU fused with it."""

    def __init__(self, network: AlphaZeroNet, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(network, device, dtype, compiled=False)
        self.description = f"fused convolutions of cuDNN on {device.type}, {dtype}"
        for module in list(self.network.modules()):
            for name, child in module.named_children():
                if isinstance(child, ConvNorm) and can_be_fused(child.conv):
                    setattr(module, name, FusedConv(child.conv))


def can_be_fused(conv: nn.Conv2d) -> bool:
    """Whether cuDNN has a fused kernel for its channels."""
    return conv.in_channels % CHANNEL_GROUP == 0 and conv.out_channels % CHANNEL_GROUP == 0


class FusedConv(nn.Module):
    """In place of a ConvNorm after `fold`; parameters keep their names."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, input_BCHW: Tensor, *, rectifies: bool = False) -> Tensor:
        """As ConvNorm's."""
        conv = self.conv
        if not rectifies:  # squeeze-excitation comes between
            unrectified_BCHW: Tensor = conv(input_BCHW)
            return unrectified_BCHW
        assert not isinstance(conv.padding, str)
        return torch.cudnn_convolution_relu(
            input_BCHW, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups
        )

    def added_to(self, skip_BCHW: Tensor, input_BCHW: Tensor) -> Tensor:
        """As ConvNorm's."""
        conv = self.conv
        assert not isinstance(conv.padding, str)
        return torch.cudnn_convolution_add_relu(
            input_BCHW,
            conv.weight,
            skip_BCHW,
            UNSCALED,
            conv.bias,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
        )
