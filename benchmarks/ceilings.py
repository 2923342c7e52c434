"""What a device can do at best: a large matrix product, or a chain of bare 3x3 convolutions."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model.precision import DTYPES, choose_device
from alphazero.settings.flags import Parser, batch_size, count, seconds
from benchmarks.measuring.clock import pass_times

BOARD, KERNEL = 8, 3
Work = Callable[[], object]


def run(arguments: list[str]) -> dict[str, object]:
    """TFLOP/s: two operations a multiply-add, a backward pass as two forwards."""
    parser = Parser(prog="alphazero bench ceilings", description=__doc__)
    parser.add_argument("--what", choices=("product", "convolutions"), default="product")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--size", type=count, default=1024, help="rows and columns of the product")
    parser.add_argument("--batch", type=batch_size, default=64, help="boards of the convolutions")
    parser.add_argument("--filters", type=count, default=64, help="channels of the convolutions")
    parser.add_argument("--blocks", type=count, default=6, help="convolutions in a row")
    parser.add_argument("--seconds", type=seconds(), default=1.0)
    args = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    device = choose_device(args.device, 0, os.environ)
    make = product if args.what == "product" else convolutions
    work, flops = make(args, device, DTYPES["fp32" if args.precision == "tf32" else args.precision])
    taken = statistics.median(pass_times(work, device, args.seconds))
    if device.type == "cuda" and args.what == "convolutions":
        graphs = CudaRecorder(device)
        graphs.warm_up(work)
        taken = min(taken, statistics.median(pass_times(graphs.record(work), device, args.seconds)))
    asked = {name: getattr(args, name) for name in ("what", "precision", "batch")}
    return {**asked, "tflops": flops / taken / 1e12}


def product(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> tuple[Work, int]:
    """A square product of random numbers; zeros would run faster."""
    chance = torch.Generator(device).manual_seed(1)
    left, right = (
        torch.randn(args.size, args.size, generator=chance, device=device).to(dtype) for _ in range(2)
    )
    result = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=result), 2 * args.size**3


def convolutions(args: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> tuple[Work, int]:
    """Forward and backward, channels last, nothing between the convolutions."""
    chance, channels = torch.Generator(device).manual_seed(1), args.filters

    def random(*shape: int) -> Tensor:
        drawn = torch.randn(*shape, generator=chance, device=device).to(dtype)
        return drawn.to(memory_format=torch.channels_last)

    inputs_BCHW = random(args.batch, channels, BOARD, BOARD).requires_grad_()
    gradient_BCHW = random(args.batch, channels, BOARD, BOARD)
    spread = (channels * KERNEL**2) ** -0.5  # values keep their size
    weights = [
        (spread * random(channels, channels, KERNEL, KERNEL)).requires_grad_() for _ in range(args.blocks)
    ]

    def work() -> object:
        values_BCHW = inputs_BCHW
        for weight in weights:
            values_BCHW = functional.conv2d(values_BCHW, weight, padding=KERNEL // 2)
        return torch.autograd.grad(values_BCHW, [inputs_BCHW, *weights], gradient_BCHW)

    return work, 3 * args.blocks * 2 * args.batch * BOARD**2 * channels**2 * KERNEL**2
