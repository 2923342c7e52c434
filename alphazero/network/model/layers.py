"""Layers of the tower, which use the core's bf16 functions where these are faster than PyTorch's.

They are BatchNorm with its ReLU, convolutions with the gradient of their weights, squeeze-excitation and
the end of a residual block. PyTorch's own BatchNorm takes two thirds as long on the CPU as the convolutions
do. The core's functions (csrc/network) compute in fp32 and give the same bits on
every CPU.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

import alphazero._core as _core

# Shapes: B positions, C channels (of convolutions I in, O out), H x W board, S = H * W squares.

Bits: TypeAlias = npt.NDArray[np.uint16]

TRITON = "triton"  # the name of squeeze_triton.py's kernels


def is_fused(input_BCHW: Tensor, weight: Tensor) -> bool:
    """Whether the core can take a layer: bf16 in channels-last memory, fp32 weights, one thread on a CPU."""
    return (
        input_BCHW.dtype is torch.bfloat16
        and input_BCHW.device.type == "cpu"
        and weight.dtype is torch.float32
        and torch.get_num_threads() == 1
        and input_BCHW.is_contiguous(memory_format=torch.channels_last)
        and not torch.compiler.is_compiling()
    )


def boards_of(tensor_BCHW: Tensor) -> Bits:
    """A bf16 tensor in channels-last memory as the core takes it, u16 [B, H, W, C], without a copy."""
    bits: Bits = tensor_BCHW.detach().permute(0, 2, 3, 1).view(torch.uint16).numpy()
    return bits


def bits_of(tensor_BCHW: Tensor) -> Bits:
    """The same where boards do not matter, u16 [B, S, C]."""
    boards_BHWC = boards_of(tensor_BCHW)
    return boards_BHWC.reshape(len(boards_BHWC), -1, boards_BHWC.shape[3])


def narrowed(gradient_BCHW: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A gradient, which may come in any order and precision, in channels-last memory."""
    return gradient_BCHW.to(dtype).contiguous(memory_format=torch.channels_last)


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
        rows = _rows(input_BCHW)
        mean_C, variance_C = _core.batch_norm(
            rows,
            weight_C.detach().numpy(),
            bias_C.detach().numpy(),
            norm.eps,
            rectifies,
            _rows(output_BCHW),
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
            _rows(input_BCHW),
            _rows(output_BCHW),
            _rows(narrowed(gradient_BCHW)),
            weight_C.detach().numpy(),
            mean_C,
            variance_C,
            ctx.eps,
            ctx.rectifies,
            _rows(input_gradient_BCHW),
        )
        return (
            input_gradient_BCHW,
            torch.from_numpy(weight_gradient_C),
            torch.from_numpy(bias_gradient_C),
            None,
            None,
        )


def _rows(tensor_BCHW: Tensor) -> Bits:
    return boards_of(tensor_BCHW).reshape(-1, tensor_BCHW.shape[1])


SAME = [1, 1]  # padding of a 3x3 convolution that keeps the board's size
# Its stride, padding and dilation; not transposed, padding of that output, groups.
CONVOLUTION = (SAME, SAME, SAME, False, [0, 0], 1)


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
                gradient_BOHW, input_BIHW, weight_OI33, None, *CONVOLUTION, [True, False, False]
            )
        if wants_weight:
            outputs, inputs = weight_OI33.shape[:2]
            gradient_O33I = torch.empty(outputs, 3, 3, inputs)
            _core.weight_gradient(
                boards_of(input_BIHW), boards_of(narrowed(gradient_BOHW)), gradient_O33I.numpy()
            )
            weight_gradient_OI33 = gradient_O33I.permute(0, 3, 1, 2)
        return input_gradient_BIHW, weight_gradient_OI33


class SqueezeExcitation(nn.Module):
    """Scales and shifts each channel by what the whole board shows (Hu et al. 2018, arXiv:1709.01507).

    With lc0's shift: the second layer gives 2C numbers, the first C (through a sigmoid) scale, the
    last C are added (lczero-training tf/tfprocess.py ApplySqueezeExcitation).
    """

    trained_by: ClassVar[str] = ""  # on CUDA, all of this process: TRITON, else PyTorch's operators
    evaluated_by = ""  # the same, of one that is not trained

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
        if self._is_fused(skip_BCHW, branch_BCHW):
            last = torch.channels_last  # above ZeRO 0 weights are not, nor need be what comes after them
            skip_BCHW, branch_BCHW = (x.contiguous(memory_format=last) for x in (skip_BCHW, branch_BCHW))
            mean_BC: Tensor = _Squeeze.apply(branch_BCHW)  # type: ignore[no-untyped-call]
            with torch.autocast(branch_BCHW.device.type, enabled=False):
                scale_BC, shift_BC = self._scale_and_shift(mean_BC.to(self.excite.weight.dtype))
            output_BCHW: Tensor = _Excite.apply(  # type: ignore[no-untyped-call]
                skip_BCHW, branch_BCHW, scale_BC, shift_BC
            )
            return output_BCHW
        # In place: it saves an activation a block, and nothing else reads the sum.
        return torch.relu_(skip_BCHW + self(branch_BCHW))

    def _is_fused(self, skip_BCHW: Tensor, branch_BCHW: Tensor) -> bool:
        weight = self.excite.bias
        if branch_BCHW.device.type == "cpu":
            return self.training and is_fused(branch_BCHW, weight) and is_fused(skip_BCHW, weight)
        kernels = self.trained_by if self.training else self.evaluated_by
        return kernels == TRITON and not torch.compiler.is_compiling()

    def _scale_and_shift(self, mean_BC: Tensor) -> tuple[Tensor, Tensor]:
        scale_BC, shift_BC = self.excite(functional.relu(self.squeeze(mean_BC))).chunk(2, dim=1)
        return torch.sigmoid(scale_BC), shift_BC


def _call(name: str, *tensors: Tensor) -> None:
    """The core's function of that name, on CUDA Triton's. Boards are channels last."""
    if tensors[0].device.type == "cpu":
        getattr(_core, name)(*(bits_of(one) if one.ndim == 4 else one.numpy() for one in tensors))
    else:
        from alphazero.network.model.squeeze_triton import launch  # Triton comes with torch for CUDA alone

        launch(name, *tensors)


class _Squeeze(torch.autograd.Function):
    """The mean over the squares, fp32."""

    @staticmethod
    def forward(ctx: Any, branch_BCHW: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type for it
        mean_BC = branch_BCHW.new_empty(branch_BCHW.shape[:2], dtype=torch.float32)
        _call("squeeze", branch_BCHW, mean_BC)
        ctx.shape, ctx.dtype = branch_BCHW.shape, branch_BCHW.dtype
        return mean_BC

    @staticmethod
    def backward(ctx: Any, gradient_BC: Tensor) -> Tensor:  # noqa: ANN401
        share_BC = (gradient_BC / (ctx.shape[2] * ctx.shape[3])).to(ctx.dtype)
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
        _call("excite", skip_BCHW.detach(), branch_BCHW.detach(), scale_BC, shift_BC, output_BCHW)
        ctx.save_for_backward(branch_BCHW, output_BCHW, scale_BC)
        return output_BCHW

    @staticmethod
    def backward(ctx: Any, gradient_BCHW: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401
        branch_BCHW, output_BCHW, scale_BC = ctx.saved_tensors
        gradient_BCHW = narrowed(gradient_BCHW, branch_BCHW.dtype)
        boards = torch.empty_like(branch_BCHW), torch.empty_like(branch_BCHW)
        numbers = torch.empty_like(scale_BC), torch.empty_like(scale_BC)
        _call("excite_backward", branch_BCHW, output_BCHW, gradient_BCHW, scale_BC, *boards, *numbers)
        return *boards, *numbers
