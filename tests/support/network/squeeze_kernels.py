"""Triton's kernels of squeeze-excitation without a GPU, in a process of its own; prints JSON.

`interpret` (with TRITON_INTERPRET=1) runs them on tensors of the CPU, `compile` makes code for GPUs of them.
"""

import json
import re
import sys
from unittest import mock

import torch
from torch.nn import functional

from alphazero.network.inference import kernels
from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.kernels import CUDNN_TRITON, evaluation_passes, trial
from alphazero.network.model import layers, squeeze_triton
from alphazero.network.model.layers import TRITON, SqueezeExcitation
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.load import load_config
from alphazero.training.engine import probe

# Boards, channels, height, width, precision.
CASES = [
    (3, 256, 8, 8, "bfloat16"),
    (1, 32, 6, 7, "float16"),
    (5, 96, 6, 7, "bfloat16"),
    (2, 20, 8, 8, "float32"),
    (1, 65, 1, 1, "float16"),
    (3, 8, 9, 9, "bfloat16"),
]
CPU = torch.device("cpu")


def errors(boards: int, channels: int, height: int, width: int, precision: str) -> dict[str, float]:
    """Of output and gradients beside the plain formula in fp64, as a share of the largest number."""
    generator = torch.Generator().manual_seed(boards)
    module, exact = (SqueezeExcitation(channels, max(8, channels // 8)) for _ in range(2))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3, generator)
    exact.double().load_state_dict(module.state_dict())
    shape = boards, channels, height, width
    skip, branch, upstream = (
        torch.randn(shape, generator=generator).to(getattr(torch, precision)) for _ in range(3)
    )
    skip += 8 * skip.sign()  # else rounding would decide what ReLU lets pass
    # Not channels last, as above ZeRO 0.
    inputs = [tensor.clone().requires_grad_() for tensor in (skip, branch)]
    trues = [tensor.double().requires_grad_() for tensor in (skip, branch)]
    output, true = module.added_to(*inputs), functional.relu(trues[0] + exact(trues[1]))
    assert output.dtype is branch.dtype
    found = torch.autograd.grad(output, [*inputs, *module.parameters()], upstream)
    expected = torch.autograd.grad(true, [*trues, *exact.parameters()], upstream.double())
    names = ["output", "skip", "branch", *dict(module.named_parameters())]
    return {
        name: float(((one.detach().double() - other).abs().max() / other.abs().max()).detach())
        for name, one, other in zip(names, [output, *found], [true, *expected], strict=True)
    }


def edges() -> dict[str, list[float]]:
    """At sums of -1, 0, 1 and of no number: outputs and gradients of skip."""
    skip = torch.tensor([-1.0, 0.0, 1.0, float("nan")]).to(torch.bfloat16).view(1, 1, 2, 2)
    skip.requires_grad_()
    branch, zeros = torch.zeros_like(skip).detach(), torch.zeros(1, 1)
    output = layers._Excite.apply(skip, branch, zeros, zeros)
    output.backward(torch.full_like(output, 3.0))
    return {"output": output.flatten().tolist(), "gradient": skip.grad.flatten().tolist()}


def in_company() -> bool:
    """Whether a board has the same bits alone and among others."""
    boards = torch.randn(5, 4, 4, 96).to(torch.bfloat16).permute(0, 3, 1, 2)
    means = layers._Squeeze.apply(boards)
    return torch.equal(means[3:4], layers._Squeeze.apply(boards[3:4]))


def trials() -> list[str]:
    """What a trial says of the kernels, and of some without their shift."""
    config = load_config("connect4", {"filters": 32, "se_ratio": 4, "precision": "bf16"})
    passes = probe.squeeze_passes(config, CPU)
    right = trial(passes, torch.bfloat16, None, TRITON)[0]

    def without_shift(name: str, *tensors: torch.Tensor) -> None:
        if name == "excite":
            tensors = *tensors[:3], torch.zeros_like(tensors[3]), tensors[4]
        squeeze_triton.launch(name, *tensors)

    with mock.patch.object(layers, "_call", without_shift):
        return [right, trial(passes, torch.bfloat16, None, TRITON)[0]]


def trial_of_evaluations() -> str:
    """What a trial says of evaluations; the convolutions are PyTorch's, as cuDNN is not there."""

    def forward_by(
        network: AlphaZeroNet, device: torch.device, dtype: torch.dtype, name: str
    ) -> ModuleForward:
        forward = ModuleForward(network, device, dtype)
        for module in forward.network.modules():
            if isinstance(module, SqueezeExcitation) and name == CUDNN_TRITON:
                module.evaluated_by = TRITON
        return forward

    config = load_config("connect4", {"filters": 32, "se_ratio": 4})
    with mock.patch.object(kernels, "make_cuda_forward", forward_by):
        return trial(evaluation_passes(config.network, CPU, 4), torch.bfloat16, None, CUDNN_TRITON)[0]


def interpret() -> dict[str, object]:
    """Numbers of the kernels on the CPU."""
    evaluated = []

    def is_fused(module: SqueezeExcitation, *tensors: torch.Tensor) -> bool:
        by = module.trained_by if module.training else module.evaluated_by
        evaluated.append(by == TRITON and not module.training)
        return by == TRITON and tensors[0].dtype is not torch.float64

    SqueezeExcitation.trained_by = TRITON
    with (
        mock.patch.object(layers, "_call", squeeze_triton.launch),
        mock.patch.object(SqueezeExcitation, "_is_fused", is_fused),
        mock.patch.object(probe, "TRIAL_BOARDS", 4),
    ):
        measured = [(case[-1], errors(*case)) for case in CASES]
        of_evaluations = trial_of_evaluations()
        assert any(evaluated)
        return {
            **{"errors": measured, "edges": edges(), "in_company": in_company()},
            "trials": [*trials(), of_evaluations],
        }


def compiled() -> list[list[object]]:
    """Of each kernel for some GPUs, boards and precisions: what it reads in, by instruction."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    made = []
    for kernel in (squeeze_triton.squeeze, squeeze_triton.excite, squeeze_triton.excite_backward):
        numbers = [name for name in kernel.arg_names if name not in ("S", "C")]
        small = {"mean", "scale", "shift", "of_scale", "of_shift"}
        for capability, squares, channels, precision in [
            *((80, 64, 256, "bf16"), (90, 64, 256, "bf16"), (90, 64, 256, "fp16")),
            *((90, 42, 20, "bf16"), (100, 42, 96, "fp32")),
        ]:
            types = {name: "*fp32" if name in small else f"*{precision}" for name in numbers}
            source = ASTSource(
                kernel,
                {**types, "S": "constexpr", "C": "constexpr"},
                {(len(numbers),): squares, (len(numbers) + 1,): channels},
                {(place,): [["tt.divisibility", 16]] for place in range(len(numbers))},
            )
            code = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
            wide = bool(re.search(r"ld\.global\S*\.v4\.b32", code))
            made.append([kernel.__name__, capability, squares, channels, precision, wide])
    return made


if __name__ == "__main__":
    print(json.dumps(interpret() if sys.argv[1] == "interpret" else compiled()))
