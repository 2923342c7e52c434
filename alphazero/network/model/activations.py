"""The activations of lc0's networks by name, and a mish that trains fast when it is compiled for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_EXPONENT = 20.0  # above it mish is x in fp32; the squares below stay finite


def mish(input: Tensor) -> Tensor:
    """x tanh(ln(1 + e^x)) (Misra 2019, arXiv:1908.08681).

    torch's formula has comparisons, of which torch.compile makes code for a CPU that is several times slower.
    """
    if torch.compiler.is_compiling() and input.device.type == "cpu" and torch.is_grad_enabled():
        output: Tensor = SmoothMish.apply(input)  # type: ignore[no-untyped-call]
        return output
    return functional.mish(input)


class SmoothMish(torch.autograd.Function):
    """Mish without comparisons: tanh(ln(1 + p)) = n / (n + 2) with p = e^x and n = p (p + 2). In fp32."""

    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type for it
        ctx.save_for_backward(input)
        x, power = _with_power(input)
        above = power * (power + 2)
        return (x * above / (above + 2)).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        (input,) = ctx.saved_tensors
        x, power = _with_power(input)
        above = power * (power + 2)
        below = above + 2
        slope = above / below + x * (4 * power * (power + 1)) / (below * below)
        return (gradient.float() * slope).to(input.dtype)


def _with_power(input: Tensor) -> tuple[Tensor, Tensor]:
    x = input.float()
    return x, x.clamp(max=LARGEST_EXPONENT).exp()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "mish": mish,
    "swish": functional.silu,
    "relu_2": lambda input: functional.relu(input).square(),
    "selu": functional.selu,  # of the attention policy head on a residual tower
}
