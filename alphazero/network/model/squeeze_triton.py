"""The functions of csrc/network/squeeze_excitation.hpp on CUDA, in Triton, which comes with torch for CUDA.

A program has a board and a block of its channels and adds in fp32, in one order: equal bits in any company.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# Shapes: B boards, S squares, C channels; a tile is R squares x W channels. Four warps: 16 numbers a thread.
R, W = tl.constexpr(32), tl.constexpr(64)


@triton.jit
def _tile(start, S: tl.constexpr, C: tl.constexpr):
    """Where the tile from square `start` on lies in [B, S, C], and which numbers of it there are."""
    square, channel = start + tl.arange(0, R)[:, None], tl.program_id(1) * W + tl.arange(0, W)[None, :]
    return (tl.program_id(0).to(tl.int64) * S + square) * C + channel, (square < S) & (channel < C)


@triton.jit
def _row(C: tl.constexpr):
    """Where its channels lie in [B, C], and which of them there are."""
    channel = tl.program_id(1) * W + tl.arange(0, W)
    return tl.program_id(0).to(tl.int64) * C + channel, channel < C


@triton.jit
def _read(numbers, at, there):
    return tl.load(numbers + at, mask=there, other=0.0).to(tl.float32)


@triton.jit
def squeeze(branch, mean, S: tl.constexpr, C: tl.constexpr):
    sums = tl.zeros((R, W), tl.float32)
    for start in range(0, S, R):
        at, there = _tile(start, S, C)
        sums += _read(branch, at, there)
    row, is_there = _row(C)
    tl.store(mean + row, tl.sum(sums, 0) / S, mask=is_there)


@triton.jit
def excite(skip, branch, scale, shift, output, S: tl.constexpr, C: tl.constexpr):
    row, is_there = _row(C)
    scale_W, shift_W = _read(scale, row, is_there)[None, :], _read(shift, row, is_there)[None, :]
    for start in range(0, S, R):
        at, there = _tile(start, S, C)
        value = _read(skip, at, there) + _read(branch, at, there) * scale_W + shift_W
        value = tl.where(value < 0.0, 0.0, value)  # NaN stays
        tl.store(output + at, value.to(output.dtype.element_ty), mask=there)


@triton.jit
def excite_backward(
    branch, output, gradient, scale, of_skip, of_branch, of_scale, of_shift, S: tl.constexpr, C: tl.constexpr
):
    row, is_there = _row(C)
    scale_W = _read(scale, row, is_there)[None, :]
    scale_sums, shift_sums = tl.zeros((R, W), tl.float32), tl.zeros((R, W), tl.float32)
    for start in range(0, S, R):
        at, there = _tile(start, S, C)
        passed = tl.where(_read(output, at, there) <= 0.0, 0.0, _read(gradient, at, there))
        tl.store(of_skip + at, passed.to(of_skip.dtype.element_ty), mask=there)
        tl.store(of_branch + at, (passed * scale_W).to(of_branch.dtype.element_ty), mask=there)
        scale_sums += passed * _read(branch, at, there)
        shift_sums += passed
    tl.store(of_scale + row, tl.sum(scale_sums, 0).to(of_scale.dtype.element_ty), mask=is_there)
    tl.store(of_shift + row, tl.sum(shift_sums, 0).to(of_shift.dtype.element_ty), mask=is_there)


def launch(name: str, *tensors: Tensor) -> None:
    """Do what the core's function of that name does, on tensors in its order, boards channels last."""
    boards, channels, height, width = tensors[0].shape
    kernel = {"squeeze": squeeze, "excite": excite, "excite_backward": excite_backward}[name]
    kernel[boards, triton.cdiv(channels, W.value)](*tensors, height * width, channels)
