"""Convolutions of the tower, the gradient of whose weights is the core's where that is faster."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from alphazero import _core
from alphazero.network.model.bf16_cpu import boards_of, gradient_boards, is_fused

# Shapes: B positions, I and O channels, H x W board.

NOT_TRANSPOSED, OUTPUT_PADDING, GROUPS = False, [0, 0], 1
SAME = [1, 1]  # stride, padding and dilation of a 3x3 convolution that keeps the board's size


class Convolution(nn.Conv2d):
    """torch's, without bias, for outputs as large as the board."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, input_BIHW: Tensor) -> Tensor:
        """[B, I, H, W] -> [B, O, H, W]."""
        if self.training and self._is_faster_here(input_BIHW):
            convolved_BOHW: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
                input_BIHW, self.weight
            )
            return convolved_BOHW
        return super().forward(input_BIHW)

    def _is_faster_here(self, input_BIHW: Tensor) -> bool:
        return (
            self.kernel_size == (3, 3)
            and self.out_channels % _core.OUTPUTS_PER_TILE == 0
            and is_fused(input_BIHW, self.weight)
            and _core.has_weight_gradient()
        )


class _Convolution(torch.autograd.Function):
    """See csrc/network/weight_gradient.hpp; all else is oneDNN's. The weights' gradient is not rounded."""

    @staticmethod
    def forward(ctx: Any, input_BIHW: Tensor, weight_OI33: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type
        narrow_OI33 = weight_OI33.to(torch.bfloat16)
        ctx.save_for_backward(input_BIHW, narrow_OI33)
        return torch.conv2d(input_BIHW, narrow_OI33, padding=SAME)

    @staticmethod
    def backward(ctx: Any, gradient_BOHW: Tensor) -> tuple[Tensor | None, Tensor | None]:  # noqa: ANN401
        input_BIHW, weight_OI33 = ctx.saved_tensors
        wants_input, wants_weight = ctx.needs_input_grad
        input_gradient_BIHW = weight_gradient_OI33 = None
        if wants_input:
            input_gradient_BIHW, _, _ = torch.ops.aten.convolution_backward(
                gradient_BOHW,
                input_BIHW,
                weight_OI33,
                None,
                SAME,
                SAME,
                SAME,
                NOT_TRANSPOSED,
                OUTPUT_PADDING,
                GROUPS,
                [True, False, False],
            )
        if wants_weight:
            outputs, inputs = weight_OI33.shape[:2]
            gradient_O33I = torch.empty(outputs, 3, 3, inputs)
            _core.weight_gradient(
                boards_of(input_BIHW), gradient_boards(gradient_BOHW), gradient_O33I.numpy()
            )
            weight_gradient_OI33 = gradient_O33I.permute(0, 3, 1, 2)
        return input_gradient_BIHW, weight_gradient_OI33
