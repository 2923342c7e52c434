"""Which kernels evaluate a network on CUDA: one choice for a process, tried on the device before use.

Kernels round differently, so that games differ with them: the ranks of a run choose together by timing and
keep their choice (planner.choose_kernels); elsewhere a process takes the first that are right.

The fastest are cuDNN's fused convolutions: bias, residual sum and ReLU in the same call. cuDNN computes
max(0, convolution + alpha * addend + bias) and rounds once (cuDNN developer guide, fused operation graphs).
PyTorch's operators write and read the whole tower three times a block more, and round each time: in their own
precision both are as near to the exact result, and not equal to the bit.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from alphazero.games.lines import random_positions
from alphazero.games.registry import get_spec
from alphazero.machine.memory import memory_error
from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.program import CudaRecorder, cudnn_by_rule
from alphazero.network.model.attention import COMPILED, COMPILED_PLAIN
from alphazero.network.model.heads import ConvNorm
from alphazero.network.model.layers import TRITON, BatchNorm, SqueezeExcitation
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.resnet import AlphaZeroNet, ResidualBlock
from alphazero.settings.sections import NetworkConfig

# Shapes: B positions, C channels, H x W board.

# cuDNN's fused convolutions; PyTorch's operators one after the other, which are always right; cuDNN's with
# Triton's between the second convolution of a block with squeeze-excitation and its end.
TOWER_KERNELS = CUDNN, OPERATORS, CUDNN_TRITON = "cudnn", "operators", "cudnn+triton"
ATTENTION_KERNELS = OPERATORS, COMPILED, COMPILED_PLAIN

# Other kernels may be so many times as far from the exact result as the operators are, and by a little more.
MOST_ERROR, LEAST_ERROR = 2.0, 1e-6
PROBE_BLOCKS = 2  # all blocks have the same shapes
# Of a probe's second convolutions: the tower's activations must not grow out of fp16's reach.
BRANCH_SCALE = 0.3
# Fused kernels take channels in groups of so many: 16 bytes of bf16. Planes of small games are fewer.
CHANNEL_GROUP = 8
UNSCALED = 1.0
TIMED_PASSES = 10

Pass = Callable[[], Sequence[Tensor]]
MakePass = Callable[[str, torch.dtype], Pass]  # by kernels, in a precision

_chosen = ""


def use_kernels(kernels: str) -> None:
    """Evaluate with these from now on in this process; "" lets each evaluator choose."""
    global _chosen
    _chosen = kernels


def kernels_in_use() -> str:
    """What use_kernels said last."""
    return _chosen


class CudnnForward(ModuleForward):
    """The modules with every convolution before a ReLU fused with it. squeeze: `evaluated_by` of blocks."""

    def __init__(
        self, network: AlphaZeroNet, device: torch.device, dtype: torch.dtype, squeeze: str = ""
    ) -> None:
        super().__init__(network, device, dtype)
        self.description = f"fused convolutions of cuDNN on {device.type}, {dtype}"
        for module in list(self.network.modules()):
            if isinstance(module, SqueezeExcitation):
                module.evaluated_by = squeeze
            for name, child in module.named_children():
                if isinstance(child, ConvNorm) and can_be_fused(child.conv):
                    setattr(module, name, FusedConv(child.conv))


def can_be_fused(conv: nn.Conv2d) -> bool:
    """Whether cuDNN has a fused kernel for its channels."""
    return conv.in_channels % CHANNEL_GROUP == 0 and conv.out_channels % CHANNEL_GROUP == 0


class FusedConv(nn.Module):
    """In place of a ConvNorm after `fold`; parameters keep their names."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        assert not isinstance(conv.padding, str)
        self.conv = conv
        self.how = conv.stride, conv.padding, conv.dilation, conv.groups

    def forward(self, input_BCHW: Tensor, *, rectifies: bool = False) -> Tensor:
        """As ConvNorm's."""
        conv = self.conv
        if not rectifies:  # squeeze-excitation comes between
            unrectified_BCHW: Tensor = conv(input_BCHW)
            return unrectified_BCHW
        return torch.cudnn_convolution_relu(input_BCHW, conv.weight, conv.bias, *self.how)

    def added_to(self, skip_BCHW: Tensor, input_BCHW: Tensor) -> Tensor:
        """As ConvNorm's."""
        conv = self.conv
        return torch.cudnn_convolution_add_relu(
            input_BCHW, conv.weight, skip_BCHW, UNSCALED, conv.bias, *self.how
        )


def make_cuda_forward(
    network: AlphaZeroNet, device: torch.device, dtype: torch.dtype, kernels: str
) -> ModuleForward:
    """The forward pass by these kernels."""
    if kernels in ATTENTION_KERNELS:
        return ModuleForward(network, device, dtype, kernels=kernels)
    return CudnnForward(network, device, dtype, TRITON if kernels == CUDNN_TRITON else "")


def kernels_of(config: NetworkConfig) -> tuple[str, ...]:
    """Those that there are for such a network, in the order of choice outside a run."""
    if config.body == "attention":
        return ATTENTION_KERNELS
    return TOWER_KERNELS if config.se_ratio else (CUDNN, OPERATORS)


def kernels_for(network: AlphaZeroNet, device: torch.device, dtype: torch.dtype, batch_size: int) -> str:
    """Those in use; else the first that are right here."""
    if _chosen:
        return _chosen
    names = kernels_of(network.config)
    return next(name for name in names if not why_not(name, network.config, device, dtype, batch_size))


@functools.lru_cache(maxsize=64)
def why_not(
    kernels: str, config: NetworkConfig, device: torch.device, dtype: torch.dtype, batch_size: int
) -> str:
    """Why these kernels are not to evaluate such networks on this device; "" where they may."""
    if kernels == OPERATORS:
        return ""
    return trial(evaluation_passes(config, device, batch_size), dtype, None, kernels)[0]


def evaluation_passes(config: NetworkConfig, device: torch.device, batch_size: int) -> MakePass:
    """Evaluations by a small network of the same widths."""
    network = probe_network(config)
    packed, _, _ = random_positions(config.game)
    rows = torch.arange(batch_size) % len(packed)
    planes_BCHW = expand_planes(torch.from_numpy(packed)[rows].to(device), network.spec)

    def make_pass(kernels: str, dtype: torch.dtype) -> Pass:
        forward, own_BCHW = make_cuda_forward(network, device, dtype, kernels), planes_BCHW.to(dtype)
        return cudnn_by_rule()(torch.inference_mode()(lambda: forward(own_BCHW)))

    return make_pass


def trial(
    make_pass: MakePass, dtype: torch.dtype, timed_on: torch.device | None, kernels: str
) -> tuple[str, float]:
    """Why these kernels are not to be used, "" where they may, and seconds of a pass if timed on a GPU.

    Results must be as near to those in fp64 as the operators' (MOST_ERROR), and the same bits twice. The
    operators themselves are only timed.
    """
    try:
        tried = make_pass(kernels, dtype)
        if kernels != OPERATORS and (fault := _fault(make_pass, dtype, tried)):
            return fault, 0.0
        return "", _seconds(tried, timed_on) if timed_on else 0.0
    except Exception as error:  # cuDNN has no such engine, Triton is missing, ...
        # The ranks of a run choose once, together. Elsewhere games would depend on the memory that is free.
        if timed_on is None and memory_error(error):
            raise
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}", 0.0
    finally:
        if kernels.startswith(COMPILED):
            # Few variants of a function may be compiled, and the probe's shapes do not come again.
            torch.compiler.reset()


def _fault(make_pass: MakePass, dtype: torch.dtype, tried: Pass) -> str:
    """What is wrong with the results of kernels other than the operators; "" where nothing is."""
    exact, plain = make_pass(OPERATORS, torch.float64)(), make_pass(OPERATORS, dtype)()
    first, second = tried(), tried()
    if not all(torch.equal(one, other) for one, other in zip(first, second, strict=True)):
        return "they gave other bits the second time"
    for error, usual in zip(_errors(first, exact), _errors(plain, exact), strict=True):
        if not error <= MOST_ERROR * usual + LEAST_ERROR:
            return f"their error is {error:.1e} where that of PyTorch's operators is {usual:.1e}"
    return ""


def _seconds(run: Pass, device: torch.device) -> float:
    """Of a pass as a CUDA graph, in which the time of launches does not show."""
    recorder = CudaRecorder(device)
    recorder.warm_up(run)
    replay = recorder.record(run)
    replay()
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(TIMED_PASSES):
        replay()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - started) / TIMED_PASSES


def _errors(outputs: Sequence[Tensor], exact: Sequence[Tensor]) -> list[float]:
    """The largest error of each output, as a share of the largest number there, if one is not 0."""
    pairs = zip(outputs, exact, strict=True)
    return [float((output.double() - true).abs().max() / (true.abs().max() or 1)) for output, true in pairs]


@torch.no_grad()
def probe_network(config: NetworkConfig) -> AlphaZeroNet:
    """A shallow network of these widths whose BatchNorms and biases hide no mistake; always the same."""
    shallow = dataclasses.replace(config, blocks=min(config.blocks, PROBE_BLOCKS), moves_left=False)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):  # modules draw from torch's own generator as they are made
        network = AlphaZeroNet(shallow, get_spec(config.game), generator)
    for module in network.modules():
        if isinstance(module, BatchNorm):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_(0.0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            module.bias.normal_(0.0, 0.1, generator=generator)
            module.weight.uniform_(0.5, 1.5, generator=generator)
    for module in network.modules():
        if isinstance(module, ResidualBlock):
            nn.init.constant_(module.second.norm.get_parameter("weight"), BRANCH_SCALE)
    return network
