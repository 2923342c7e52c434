"""When a layer may use the core's bf16 functions, and its tensors as their arrays.

torch's own BatchNorm takes two thirds as long on the CPU as the convolutions do (docs/performance.md). The
core's functions (csrc/network) work in fp32 within and give the same bits on every CPU.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Shapes: B positions, C channels, H x W board, S = H * W squares.

Bits: TypeAlias = npt.NDArray[np.uint16]


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


def gradient_boards(gradient_BCHW: Tensor) -> Bits:
    """u16 [B, H, W, C] of a gradient, which may come in any order and precision."""
    return boards_of(gradient_BCHW.to(torch.bfloat16).contiguous(memory_format=torch.channels_last))


def gradient_bits(gradient_BCHW: Tensor) -> Bits:
    """The same as u16 [B, S, C]."""
    return bits_of(gradient_BCHW.to(torch.bfloat16).contiguous(memory_format=torch.channels_last))
