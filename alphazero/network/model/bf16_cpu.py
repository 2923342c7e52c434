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


def bits_of(tensor_BCHW: Tensor) -> Bits:
    """A bf16 tensor in channels-last memory as the core takes it, u16 [B, S, C], without a copy."""
    bits_BHWC = tensor_BCHW.detach().permute(0, 2, 3, 1).view(torch.uint16)
    bits: Bits = bits_BHWC.flatten(1, 2).numpy()
    return bits


def gradient_bits(gradient_BCHW: Tensor) -> Bits:
    """The same of a gradient, which may come in any order and precision."""
    return bits_of(gradient_BCHW.to(torch.bfloat16).contiguous(memory_format=torch.channels_last))
