"""What stands between convolutions, in bf16 on the CPU: fused by the core, forward and backward.

torch's own BatchNorm takes longer there than the convolution before it (docs/performance.md). The core's
functions (csrc/network) work in fp32 within, keep statistics in double, and give the same bits on every CPU.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from alphazero import _core

# Shapes: B positions, C channels, S squares; M = B S rows of C channels, in channels-last memory.

Bits: TypeAlias = npt.NDArray[np.uint16]


def is_fused(input_BCHW: Tensor) -> bool:
    """Whether the functions here can take this tensor: bf16 in channels-last memory, one thread on a CPU."""
    return (
        input_BCHW.dtype is torch.bfloat16
        and input_BCHW.device.type == "cpu"
        and torch.get_num_threads() == 1
        and input_BCHW.is_contiguous(memory_format=torch.channels_last)
        and not torch.compiler.is_compiling()
    )


def batch_norm(input_BCHW: Tensor, norm: nn.BatchNorm2d, *, rectifies: bool) -> Tensor:
    """BatchNorm by the batch's statistics, which move the module's; with `rectifies`, ReLU behind it."""
    output: Tensor = _BatchNorm.apply(input_BCHW, norm.weight, norm.bias, norm, rectifies)
    return output


def excited_residual(skip_BCHW: Tensor, branch_BCHW: Tensor, squeeze: nn.Linear, excite: nn.Linear) -> Tensor:
    """relu(skip + squeeze-excitation of branch), as ResidualBlock has it; its two layers in fp32."""
    output: Tensor = _ExcitedResidual.apply(
        skip_BCHW, branch_BCHW, squeeze.weight, squeeze.bias, excite.weight, excite.bias
    )
    return output


def _squares(tensor_BCHW: Tensor) -> Bits:
    """The numbers of a tensor in channels-last memory as bits, without a copy."""
    bits_BHWC = tensor_BCHW.detach().permute(0, 2, 3, 1).view(torch.uint16)
    squares: Bits = bits_BHWC.flatten(1, 2).numpy()
    return squares


def _rows(tensor_BCHW: Tensor) -> Bits:
    squares = _squares(tensor_BCHW)
    return squares.reshape(-1, squares.shape[2])


def _in_order(gradient_BCHW: Tensor) -> Tensor:
    return gradient_BCHW.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        input_BCHW: Tensor,
        weight_C: Tensor,
        bias_C: Tensor,
        norm: nn.BatchNorm2d,
        rectifies: bool,
    ) -> Tensor:
        output_BCHW = torch.empty_like(input_BCHW)
        rows = _rows(input_BCHW)
        mean, variance = _core.batch_norm(
            rows,
            weight_C.detach().numpy(),
            bias_C.detach().numpy(),
            norm.eps,
            rectifies,
            _rows(output_BCHW),
        )
        if norm.track_running_stats:
            _move(norm.running_mean, mean, norm.momentum)
            _move(norm.running_var, variance * (len(rows) / max(1, len(rows) - 1)), norm.momentum)
        ctx.save_for_backward(input_BCHW, output_BCHW, weight_C)
        ctx.statistics, ctx.eps, ctx.rectifies = (mean, variance), norm.eps, rectifies
        return output_BCHW

    @staticmethod
    def backward(ctx: Any, gradient_BCHW: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        input_BCHW, output_BCHW, weight_C = ctx.saved_tensors
        input_gradient_BCHW = torch.empty_like(input_BCHW)
        mean, variance = ctx.statistics
        weight_gradient, bias_gradient = _core.batch_norm_backward(
            _rows(input_BCHW),
            _rows(output_BCHW),
            _rows(_in_order(gradient_BCHW)),
            weight_C.detach().numpy(),
            mean,
            variance,
            ctx.eps,
            ctx.rectifies,
            _rows(input_gradient_BCHW),
        )
        return (
            input_gradient_BCHW,
            torch.from_numpy(weight_gradient),
            torch.from_numpy(bias_gradient),
            None,
            None,
        )


def _move(running_C: Tensor | None, found: npt.NDArray[np.float32], momentum: float | None) -> None:
    assert running_C is not None and momentum is not None
    running_C.lerp_(torch.from_numpy(found.astype(np.float32)), momentum)


class _ExcitedResidual(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,  # noqa: ANN401
        skip_BCHW: Tensor,
        branch_BCHW: Tensor,
        squeeze_weight: Tensor,
        squeeze_bias: Tensor,
        excite_weight: Tensor,
        excite_bias: Tensor,
    ) -> Tensor:
        mean_BC = torch.empty(branch_BCHW.shape[:2])
        _core.squeeze(_squares(branch_BCHW), mean_BC.numpy())
        with torch.autocast("cpu", enabled=False):
            squeezed_BU = functional.relu(functional.linear(mean_BC, squeeze_weight, squeeze_bias))
            excited_B2C = functional.linear(squeezed_BU, excite_weight, excite_bias)
        scale_BC, shift_BC = (part.contiguous() for part in excited_B2C.chunk(2, dim=1))
        scale_BC.sigmoid_()
        output_BCHW = torch.empty_like(branch_BCHW)
        _core.excite(
            _squares(skip_BCHW),
            _squares(branch_BCHW),
            scale_BC.numpy(),
            shift_BC.numpy(),
            _squares(output_BCHW),
        )
        ctx.save_for_backward(
            branch_BCHW, output_BCHW, mean_BC, squeezed_BU, scale_BC, squeeze_weight, excite_weight
        )
        return output_BCHW

    @staticmethod
    def backward(ctx: Any, gradient_BCHW: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        branch_BCHW, output_BCHW, mean_BC, squeezed_BU, scale_BC, squeeze_weight, excite_weight = (
            ctx.saved_tensors
        )
        gradient = _squares(_in_order(gradient_BCHW))
        output = _squares(output_BCHW)
        scale_gradient_BC, shift_gradient_BC = torch.empty_like(mean_BC), torch.empty_like(mean_BC)
        _core.excite_backward_small(
            _squares(branch_BCHW), output, gradient, scale_gradient_BC.numpy(), shift_gradient_BC.numpy()
        )
        # sigmoid' = scale (1 - scale); both layers by the chain rule.
        excited_gradient_B2C = torch.cat(
            [scale_gradient_BC * scale_BC * (1 - scale_BC), shift_gradient_BC], 1
        )
        squeezed_gradient_BU = (excited_gradient_B2C @ excite_weight).masked_fill_(squeezed_BU <= 0, 0.0)
        mean_gradient_BC = squeezed_gradient_BU @ squeeze_weight
        skip_gradient_BCHW, branch_gradient_BCHW = (
            torch.empty_like(branch_BCHW),
            torch.empty_like(branch_BCHW),
        )
        _core.excite_backward_large(
            output,
            gradient,
            scale_BC.numpy(),
            mean_gradient_BC.numpy(),
            _squares(skip_gradient_BCHW),
            _squares(branch_gradient_BCHW),
        )
        return (
            skip_gradient_BCHW,
            branch_gradient_BCHW,
            squeezed_gradient_BU.T @ mean_BC,
            squeezed_gradient_BU.sum(0),
            excited_gradient_B2C.T @ squeezed_BU,
            excited_gradient_B2C.sum(0),
        )
