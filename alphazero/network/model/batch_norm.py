"""BatchNorm that takes the ReLU behind it along, by the core where it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from alphazero import _core
from alphazero.network.model.bf16_cpu import Bits, bits_of, gradient_bits, is_fused

# Shapes: B positions, C channels, H x W board.

# lc0 folds BatchNorm with this epsilon (lc0 src/neural/network_legacy.cc); another one could not be exported.
BATCH_NORM_EPS = 1e-5


class BatchNorm(nn.BatchNorm2d):
    """torch's, with lc0's epsilon."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=BATCH_NORM_EPS)

    def forward(self, input_BCHW: Tensor, *, rectifies: bool = False) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]; ReLU behind it where it `rectifies`."""
        if self.training and is_fused(input_BCHW, self.weight):
            normed_BCHW: Tensor = _BatchNorm.apply(  # type: ignore[no-untyped-call]
                input_BCHW, self.weight, self.bias, self, rectifies
            )
            return normed_BCHW
        normed_BCHW = super().forward(input_BCHW)
        return functional.relu(normed_BCHW) if rectifies else normed_BCHW

    def move_statistics(self, mean_C: npt.NDArray[np.float32], variance_C: npt.NDArray[np.float32]) -> None:
        """Let the running statistics follow those of a batch."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        self.running_mean.lerp_(torch.from_numpy(mean_C), self.momentum)
        self.running_var.lerp_(torch.from_numpy(variance_C), self.momentum)


class _BatchNorm(torch.autograd.Function):
    """See csrc/network/batch_norm.hpp."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        input_BCHW: Tensor,
        weight_C: Tensor,
        bias_C: Tensor,
        norm: BatchNorm,
        rectifies: bool,
    ) -> Tensor:
        output_BCHW = torch.empty_like(input_BCHW)
        rows = _rows(bits_of(input_BCHW))
        mean_C, variance_C = _core.batch_norm(
            rows,
            weight_C.detach().numpy(),
            bias_C.detach().numpy(),
            norm.eps,
            rectifies,
            _rows(bits_of(output_BCHW)),
        )
        unbiased = np.float32(len(rows) / max(1, len(rows) - 1))
        norm.move_statistics(mean_C, variance_C * unbiased)
        ctx.save_for_backward(input_BCHW, output_BCHW, weight_C)
        ctx.statistics, ctx.eps, ctx.rectifies = (mean_C, variance_C), norm.eps, rectifies
        return output_BCHW

    @staticmethod
    def backward(ctx: Any, gradient_BCHW: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        input_BCHW, output_BCHW, weight_C = ctx.saved_tensors
        input_gradient_BCHW = torch.empty_like(input_BCHW)
        mean_C, variance_C = ctx.statistics
        weight_gradient_C, bias_gradient_C = _core.batch_norm_backward(
            _rows(bits_of(input_BCHW)),
            _rows(bits_of(output_BCHW)),
            _rows(gradient_bits(gradient_BCHW)),
            weight_C.detach().numpy(),
            mean_C,
            variance_C,
            ctx.eps,
            ctx.rectifies,
            _rows(bits_of(input_gradient_BCHW)),
        )
        return (
            input_gradient_BCHW,
            torch.from_numpy(weight_gradient_C),
            torch.from_numpy(bias_gradient_C),
            None,
            None,
        )


def _rows(bits_BSC: Bits) -> Bits:
    return bits_BSC.reshape(-1, bits_BSC.shape[2])
