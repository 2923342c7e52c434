"""Attention of 64 squares with added scores that have gradients, as of smolgen: which kernels are fastest."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

from alphazero.network.model.attention import attend_plainly
from alphazero.network.model.precision import DTYPES, choose_device
from alphazero.settings.flags import Parser, batch_size, count, seconds
from benchmarks.measuring.clock import pass_times

SQUARES = 64
# Shapes: B positions, N heads, Q squares, D channels of a head.
Kernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def run(arguments: list[str]) -> dict[str, object]:
    """Positions/s of one encoder's attention, forward and backward, the median over passes."""
    parser = Parser(prog="alphazero bench attention", description=__doc__)
    parser.add_argument("--batch", type=batch_size, default=128, help="positions per pass")
    parser.add_argument("--heads", type=count, default=4)
    parser.add_argument("--head-size", type=count, default=16, help="channels of a head")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument(
        "--compile", action="store_true", help="compiled kernels as well; on CUDA flex is one"
    )
    parser.add_argument("--seconds", type=seconds(), default=2.0, help="for each kernel")
    args = parser.parse_args(arguments)
    device, dtype = choose_device(args.device, 0, os.environ), DTYPES[args.precision]
    shape, chance = (args.batch, args.heads, SQUARES), torch.Generator(device).manual_seed(1)
    inputs = [
        torch.randn(*shape, size, generator=chance, device=device).to(dtype).requires_grad_()
        for size in (*[args.head_size] * 3, SQUARES)
    ]
    speeds = {}
    for name, kernel in kernels(device, args.compile).items():
        times = pass_times(partial(one_pass, kernel, inputs), device, args.seconds)
        speeds[name] = args.batch / statistics.median(times)
    asked = {name: getattr(args, name) for name in ("batch", "heads", "head_size", "precision")}
    return {**asked, "positions_per_s": speeds}


def one_pass(kernel: Kernel, inputs: list[Tensor]) -> None:
    """Forward and backward."""
    torch.autograd.grad(kernel(*inputs).sum(), inputs)


def kernels(device: torch.device, compiled: bool) -> dict[str, Kernel]:
    """What there is on this device, by name."""
    on_cuda = device.type == "cuda"
    found: dict[str, Kernel] = {
        "plain": attend_plainly,
        "torch's choice": functional.scaled_dot_product_attention,
    }
    if on_cuda:
        found["efficient"] = efficient
    if compiled:
        found["plain, compiled"] = torch.compile(attend_plainly)
        if on_cuda:
            found["flex"] = torch.compile(flex)
    return found


def efficient(query_BNQD: Tensor, key_BNQD: Tensor, value_BNQD: Tensor, scores_BNQQ: Tensor) -> Tensor:
    """torch's memory-efficient kernel alone."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return functional.scaled_dot_product_attention(query_BNQD, key_BNQD, value_BNQD, scores_BNQQ)


def flex(query_BNQD: Tensor, key_BNQD: Tensor, value_BNQD: Tensor, scores_BNQQ: Tensor) -> Tensor:
    """flex_attention with the scores as its score_mod."""

    def added(score: Tensor, position: Tensor, head: Tensor, asks: Tensor, answers: Tensor) -> Tensor:
        return score + scores_BNQQ[position, head, asks, answers]

    attended: Tensor = flex_attention.flex_attention(query_BNQD, key_BNQD, value_BNQD, score_mod=added)
    return attended
