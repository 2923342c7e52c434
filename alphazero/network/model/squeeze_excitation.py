"""Squeeze-excitation, and the end of a residual block that has it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from alphazero import _core
from alphazero.network.model.bf16_cpu import bits_of, gradient_bits, is_fused

# Shapes: B positions, C channels, H x W board.


class SqueezeExcitation(nn.Module):
    """Scales and shifts each channel by what the whole board shows (Hu et al. 2018, arXiv:1709.01507).

    With lc0's shift: the second layer gives 2C numbers, the first C (through a sigmoid) scale, the
    last C are added (lczero-training tf/tfprocess.py ApplySqueezeExcitation).
    """

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, units)
        self.excite = nn.Linear(units, 2 * channels)

    def forward(self, input_BCHW: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]."""
        scale_BC, shift_BC = self._scale_and_shift(input_BCHW.mean(dim=(2, 3)))
        return input_BCHW * scale_BC[:, :, None, None] + shift_BC[:, :, None, None]

    def added_to(self, skip_BCHW: Tensor, branch_BCHW: Tensor) -> Tensor:
        """relu(skip + what the module makes of the branch), [B, C, H, W]."""
        weight = self.excite.bias
        if self.training and is_fused(branch_BCHW, weight) and is_fused(skip_BCHW, weight):
            mean_BC: Tensor = _Squeeze.apply(branch_BCHW)  # type: ignore[no-untyped-call]
            with torch.autocast("cpu", enabled=False):
                scale_BC, shift_BC = self._scale_and_shift(mean_BC)
            output_BCHW: Tensor = _Excite.apply(  # type: ignore[no-untyped-call]
                skip_BCHW, branch_BCHW, scale_BC, shift_BC
            )
            return output_BCHW
        # In place: it saves an activation a block, and nothing else reads the sum.
        return torch.relu_(skip_BCHW + self(branch_BCHW))

    def _scale_and_shift(self, mean_BC: Tensor) -> tuple[Tensor, Tensor]:
        scale_BC, shift_BC = self.excite(functional.relu(self.squeeze(mean_BC))).chunk(2, dim=1)
        return torch.sigmoid(scale_BC), shift_BC


class _Squeeze(torch.autograd.Function):
    """The mean over the squares, fp32."""

    @staticmethod
    def forward(ctx: Any, branch_BCHW: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type for it
        mean_BC = torch.empty(branch_BCHW.shape[:2])
        _core.squeeze(bits_of(branch_BCHW), mean_BC.numpy())
        ctx.shape = branch_BCHW.shape
        return mean_BC

    @staticmethod
    def backward(ctx: Any, gradient_BC: Tensor) -> Tensor:  # noqa: ANN401
        share_BC = (gradient_BC / (ctx.shape[2] * ctx.shape[3])).to(torch.bfloat16)
        gradient_BCHW: Tensor = share_BC[:, :, None, None].expand(ctx.shape)
        return gradient_BCHW


class _Excite(torch.autograd.Function):
    """max(0, skip + branch * scale + shift); see csrc/network/squeeze_excitation.hpp."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        skip_BCHW: Tensor,
        branch_BCHW: Tensor,
        scale_BC: Tensor,
        shift_BC: Tensor,
    ) -> Tensor:
        output_BCHW = torch.empty_like(branch_BCHW)
        scale_BC, shift_BC = scale_BC.detach().contiguous(), shift_BC.detach().contiguous()
        _core.excite(
            bits_of(skip_BCHW), bits_of(branch_BCHW), scale_BC.numpy(), shift_BC.numpy(), bits_of(output_BCHW)
        )
        ctx.save_for_backward(branch_BCHW, output_BCHW, scale_BC)
        return output_BCHW

    @staticmethod
    def backward(ctx: Any, gradient_BCHW: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        branch_BCHW, output_BCHW, scale_BC = ctx.saved_tensors
        skip_gradient_BCHW = torch.empty_like(branch_BCHW)
        branch_gradient_BCHW = torch.empty_like(branch_BCHW)
        scale_gradient_BC, shift_gradient_BC = torch.empty_like(scale_BC), torch.empty_like(scale_BC)
        _core.excite_backward(
            bits_of(branch_BCHW),
            bits_of(output_BCHW),
            gradient_bits(gradient_BCHW),
            scale_BC.numpy(),
            bits_of(skip_gradient_BCHW),
            bits_of(branch_gradient_BCHW),
            scale_gradient_BC.numpy(),
            shift_gradient_BC.numpy(),
        )
        return skip_gradient_BCHW, branch_gradient_BCHW, scale_gradient_BC, shift_gradient_BC
