"""The network's forward pass on the CPU in int8: oneDNN's quantised convolutions.

Activations behind a ReLU are bytes, 0 to 255 steps of ActivationRange's size; weights are signed, in steps
of an output channel each (Krishnamoorthi 2018, arXiv:1806.08342, sections 2 and 3). Sums are exact
integers. Layers that are no convolution of the tower's width stay in bf16, or fp32 where oneDNN has no
bf16. Ranges come from positions of random games, which reach about the largest activations of real ones
(docs/performance.md, "Evaluations in int8").

The operators are those of torch's quantised export on x86 (torch/_inductor/fx_passes/quantization.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import alphazero._core as _core
from alphazero.base.errors import WeightsError
from alphazero.games.lines import random_positions
from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.onednn import ONES, OneDnnForward, Packed, Squeeze
from alphazero.network.inference.program import LARGEST_BYTE, byte_of_one
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.precision import has_onednn_bf16
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

# Shapes: B positions, N bytes of a packed position, C channels (of a convolution in, O out), H x W board,
# L numbers of the policy head.

# Bits of a range: sums of fp32 end differently in their last bits on other processors and numbers of threads.
RANGE_BITS = 8


class ActivationRange:
    """The largest activation behind each ReLU of a network's tower and policy head, by the module's name.

    "input", "blocks.0.first", "blocks.0", ..., "policy.hidden". Computed in fp32 on the CPU, and rounded up.
    """

    def __init__(self, network: AlphaZeroNet) -> None:
        self._forward = ModuleForward(network, torch.device("cpu"), torch.float32)
        packed_BN = torch.from_numpy(random_positions(network.spec.name)[0])
        self._planes_BCHW = expand_planes(packed_BN, network.spec)
        self._largest: dict[str, float] = {}
        for name in rectified_modules(network.config.blocks, network.config.policy_head):
            module = self._forward.network.get_submodule(name)
            module.register_forward_hook(partial(self._see, name))

    def _see(self, name: str, module: nn.Module, inputs: object, output_BCHW: Tensor) -> None:
        self._largest[name] = output_BCHW.max().item()

    @torch.inference_mode()
    def of(self, folded: Mapping[str, Tensor]) -> dict[str, float]:
        """Of these weights (fold_tensors). Raises WeightsError where they give no finite numbers."""
        self._forward.load(folded)
        self._forward(self._planes_BCHW)
        for name, largest in self._largest.items():
            if not np.isfinite(largest):
                raise WeightsError(f"{name}: gives {largest}, expected finite weights")
        return {name: rounded_up(largest) for name, largest in self._largest.items()}


def rounded_up(number: float) -> float:
    """To RANGE_BITS significant bits."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(math.ceil(mantissa * 2**RANGE_BITS), exponent - RANGE_BITS)


def rectified_modules(num_blocks: int, policy_head: str) -> Iterable[str]:
    """Names of the modules that end in a ReLU and whose output a convolution of the tower's width reads."""
    yield "input"
    for number in range(num_blocks):
        yield f"blocks.{number}.first"
        yield f"blocks.{number}"
    if policy_head == "convolution":
        yield "policy.hidden"


# Without VNNI, products of two neighbours are added in 16 bits: 2 * 255 * 63 fits, 2 * 255 * 127 does not.
LEVELS, LEVELS_IN_16_BITS = 127, 63
PLANES, FLOAT = "planes", ""


def weight_levels() -> int:
    """Steps of the largest weight on this CPU."""
    instructions = torch.cpu.get_capabilities()
    has_vnni = any(instructions.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
    # oneDNN may be set to use older ones.
    return LEVELS if has_vnni and "ONEDNN_MAX_CPU_ISA" not in os.environ else LEVELS_IN_16_BITS


@dataclass(frozen=True)
class QuantisedConvolution(Packed):
    """A convolution of bytes.

    A 1 of the input's bytes stands for input_step, of the output's for output_step, of the weight's for
    weight_step_O. output_dtype: uint8, or a float, whose output_step is 1.
    """

    weight_step_O: Tensor
    input_step: float
    output_step: float
    output_dtype: torch.dtype
    sum_step: float
    zero_O: Tensor

    def __call__(self, input_BCHW: Tensor, activation: str = "none") -> Tensor:
        """See Packed."""
        output_BOHW: Tensor = torch.ops.onednn.qconv2d_pointwise(
            *self._operands(input_BCHW), *self._how(), activation, [], ""
        )
        return output_BOHW

    def add_to(self, sum_BCHW: Tensor, input_BCHW: Tensor) -> Tensor:
        """See Packed; the sum comes in steps of sum_step and leaves in those of output_step."""
        added = (self.sum_step, 0, "sum", 1.0)
        output_BOHW: Tensor = torch.ops.onednn.qconv2d_pointwise.binary(
            *self._operands(input_BCHW), sum_BCHW, *self._how(), *added, "relu", [], ""
        )
        return output_BOHW

    def _operands(self, input_BCHW: Tensor) -> tuple[Any, ...]:
        """What is multiplied: numbers, what their 1 stands for, what is 0."""
        return input_BCHW, self.input_step, 0, self.weight, self.weight_step_O, self.zero_O

    def _how(self) -> tuple[Any, ...]:
        """Bias, stride, padding, dilation, groups; what a 1 of the output stands for, what is 0, its type."""
        return self.bias, ONES, self.padding, ONES, 1, self.output_step, 0, self.output_dtype


@dataclass(frozen=True)
class QuantisedSqueeze(Squeeze):
    """Squeeze-excitation of a float branch, with bytes beside it."""

    skip_step: float
    output_step: float

    def excite(self, branch_BCHW: Tensor, skip_BCHW: Tensor) -> Tensor:
        """See Squeeze."""
        scale_BC, shift_BC = self.scale_and_shift(branch_BCHW)
        branch_BSC, skip_BSC = (
            picture.permute(0, 2, 3, 1).flatten(1, 2) for picture in (branch_BCHW, skip_BCHW)
        )
        if branch_BSC.dtype is torch.bfloat16:
            branch_BSC = branch_BSC.view(torch.uint16)
        _core.excite_bytes(
            branch_BSC.numpy(),
            scale_BC.float().numpy(),
            shift_BC.float().numpy(),
            self.skip_step,
            self.output_step,
            skip_BSC.numpy(),
        )
        return skip_BSC.view(branch_BCHW.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)


class Int8Forward(OneDnnForward):
    """The same with bytes: planes (program.PlaneExpander) and activations, each in steps of some size."""

    def __init__(self, network: AlphaZeroNet, batch_size: int) -> None:
        self.range = ActivationRange(network)
        self.levels = weight_levels()
        self.planes_step = 1 / byte_of_one(network.spec)
        self.tower = ["input", *(f"blocks.{number}" for number in range(network.config.blocks))]
        self.reads, self.writes = self._flow(network.config)
        super().__init__(network, torch.bfloat16 if has_onednn_bf16() else torch.float32, batch_size)
        bits = self.levels.bit_length() + 1
        self.description = f"oneDNN quantised convolutions on cpu, int8, weights of {bits} bits"

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See ModuleForward. Raises WeightsError for weights that are not finite."""
        on_cpu = {name: tensor.cpu() for name, tensor in folded.items()}
        self.step = {name: (value or 1.0) / LARGEST_BYTE for name, value in self.range.of(on_cpu).items()}
        self.step[PLANES] = self.planes_step
        super().load(on_cpu)

    def _flow(self, config: NetworkConfig) -> tuple[dict[str, str], dict[str, str]]:
        """The activations that each convolution reads and writes; FLOAT: no bytes."""
        reads, writes = {"input.conv": PLANES}, {"input.conv": "input"}
        for number in range(config.blocks):
            block = f"blocks.{number}"
            reads[f"{block}.first.conv"], writes[f"{block}.first.conv"] = self.tower[number], f"{block}.first"
            reads[f"{block}.second.conv"] = f"{block}.first"
            writes[f"{block}.second.conv"] = FLOAT if config.se_ratio else block
        reads["policy.hidden.conv"], writes["policy.hidden.conv"] = self.tower[-1], "policy.hidden"
        reads["policy.output"], writes["policy.output"] = "policy.hidden", FLOAT
        reads["value.reduce.conv"], writes["value.reduce.conv"] = self.tower[-1], FLOAT
        return reads, writes

    def _convolution(self, folded: Mapping[str, Tensor], name: str) -> QuantisedConvolution:
        weight_OCHW, bias_O = folded[f"{name}.weight"], folded[f"{name}.bias"]
        input_step = self.step[self.reads[name]]
        step_O = weight_OCHW.abs().amax(dim=(1, 2, 3)) / self.levels
        step_O = torch.where(step_O > 0, step_O, torch.ones_like(step_O))
        bytes_OCHW = (weight_OCHW / step_O[:, None, None, None]).round_().to(torch.int8)
        padding = [weight_OCHW.shape[2] // 2] * 2
        packed = torch.ops.onednn.qconv_prepack(
            bytes_OCHW.contiguous(memory_format=torch.channels_last),
            step_O,
            input_step,
            0,
            ONES,
            padding,
            ONES,
            1,
            [self.batch_size, weight_OCHW.shape[1], *self.board],
        )
        written = self.writes[name]
        return QuantisedConvolution(
            weight=packed,
            weight_step_O=step_O,
            bias=bias_O.clone(),
            padding=padding,
            input_step=input_step,
            output_step=1.0 if written == FLOAT else self.step[written],
            output_dtype=self.dtype if written == FLOAT else torch.uint8,
            sum_step=self.step[self._before(written)] if written in self.tower else 1.0,
            zero_O=torch.zeros(len(bias_O), dtype=torch.int32),
        )

    def _before(self, name: str) -> str:
        """The tower's activations that a block adds to."""
        return self.tower[max(0, self.tower.index(name) - 1)]

    def _squeeze(self, folded: Mapping[str, Tensor], block: str) -> Squeeze:
        plain, before = super()._squeeze(folded, block), self._before(block)
        return QuantisedSqueeze(**vars(plain), skip_step=self.step[before], output_step=self.step[block])

    def _policy(self, folded: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        if self.config.policy_head == "convolution":
            return super()._policy(folded)
        step = self.step[self.tower[-1]]
        scaled = {**folded, "policy.embed.weight": folded["policy.embed.weight"] * step}
        policy = super()._policy(scaled)
        # A byte is a whole number below 256, which bf16 holds exactly.
        return lambda tower_BCHW: policy(tower_BCHW.to(self.dtype))
