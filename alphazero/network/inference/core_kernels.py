"""The core's kernels for encoders (csrc/network) on tensors of the CPU. It has no fp16: that goes by fp32."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

import alphazero._core as _core

# Shapes: B positions, Q squares, R rows, C channels, N heads.


def mish_(values: Tensor) -> Tensor:
    """Mish in place, of contiguous numbers."""
    if values.dtype is torch.float16:
        return values.copy_(mish_(values.float()))
    _core.mish(_numbers(values.view(-1)), torch.get_num_threads())
    return values


def add_and_normalise(
    skip_RC: Tensor, branch_RC: Tensor, weight_C: Tensor, bias_C: Tensor, eps: float
) -> Tensor:
    """LayerNorm(skip + branch) with f32 weights; the branch is used up."""
    if branch_RC.dtype is torch.float16:
        return branch_RC.copy_(add_and_normalise(skip_RC.float(), branch_RC.float(), weight_C, bias_C, eps))
    _core.add_and_normalise(
        _numbers(skip_RC), weight_C.numpy(), bias_C.numpy(), eps, torch.get_num_threads(), _numbers(branch_RC)
    )
    return branch_RC


def attend(projected_BQX: Tensor, added_BNQQ: Tensor) -> Tensor:
    """The attention of each head, [B, Q, C], from queries (scaled), keys and values, X = 3 C.

    added_BNQQ: to the scores, queries last; for B = 0 nothing.
    """
    if projected_BQX.dtype is torch.float16:
        return attend(projected_BQX.float(), added_BNQQ.float()).half()
    positions, squares, channels = projected_BQX.shape
    output_BQC = projected_BQX.new_empty((positions, squares, channels // 3))
    _core.attend(_numbers(projected_BQX), _numbers(added_BNQQ), torch.get_num_threads(), _numbers(output_BQC))
    return output_BQC


def _numbers(tensor: Tensor) -> npt.NDArray[Any]:
    """As the core takes them: f32, or bf16 as u16."""
    numbers: npt.NDArray[Any] = (
        tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
    ).numpy()
    return numbers
