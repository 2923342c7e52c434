"""The network's forward pass on the CPU: oneDNN's fused convolutions on weights packed once.

The operators are those torch.compile emits with frozen weights (torch/_inductor/mkldnn_lowerings.py).
Called by hand they are as fast or faster, need no compiler, and take new weights in milliseconds.

Every layer is a convolution, the fully connected ones too. A matrix product splits its sums by the
number of rows and of threads (MKL in fp32 with 2 threads, oneDNN's matmul in bf16 at 64 rows), so that
its result for one position depends on the batch; a convolution sums each output in one order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from alphazero.config import NetworkConfig
from alphazero.games.spec import GameSpec
from alphazero.network.inference.folding import fold_tensors
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.precision import has_onednn_bf16

# Shapes: B positions, C channels, H x W board, P policy planes, Q = H * W squares, 3 = win, draw, loss.

ONES = [1, 1]


def why_not_onednn(dtype: torch.dtype) -> str:
    """Why this torch on this CPU cannot run OneDnnForward in dtype; empty if it can."""
    operators = torch.ops.mkldnn
    if not hasattr(operators, "_convolution_pointwise"):
        return "this build of torch has no oneDNN"
    if dtype == torch.bfloat16 and not has_onednn_bf16():
        return "oneDNN has no bf16 on this CPU"
    if dtype == torch.float16 and not operators._is_mkldnn_fp16_supported():
        return "oneDNN has no fp16 on this CPU"
    return ""


@dataclass(frozen=True)
class Packed:
    """A convolution's weight in oneDNN's own order for one input shape, its bias, its padding."""

    weight: Tensor
    bias: Tensor
    padding: list[int]

    def __call__(self, input_BCHW: Tensor, activation: str = "none") -> Tensor:
        """Convolution, bias, activation (none, relu, sigmoid) in one pass."""
        output_BCHW: Tensor = torch.ops.mkldnn._convolution_pointwise(
            input_BCHW, self.weight, self.bias, self.padding, ONES, ONES, 1, activation, [], ""
        )
        return output_BCHW

    def add_to(self, sum_BCHW: Tensor, input_BCHW: Tensor) -> Tensor:
        """relu(sum + convolution) in one pass, in the memory of `sum`."""
        output_BCHW: Tensor = torch.ops.mkldnn._convolution_pointwise_.binary(
            sum_BCHW,
            input_BCHW,
            self.weight,
            self.bias,
            self.padding,
            ONES,
            ONES,
            1,
            "add",
            1.0,
            "relu",
            [],
            "",
        )
        return output_BCHW

    def of_rows(self, rows_BC: Tensor, activation: str = "none") -> Tensor:
        """A fully connected layer: [B, C] -> [B, C'], the rows as the squares of one picture."""
        batch_size, channels = rows_BC.shape
        picture_1CB1 = rows_BC.view(1, batch_size, 1, channels).permute(0, 3, 1, 2)
        return self(picture_1CB1, activation).permute(0, 2, 3, 1).reshape(batch_size, -1)


@dataclass(frozen=True)
class Squeeze:
    """Squeeze-excitation, the second layer in its two halves."""

    squeeze: Packed
    scale: Packed
    shift: Packed


@dataclass(frozen=True)
class Block:
    """A residual block."""

    first: Packed
    second: Packed
    squeeze: Squeeze | None


@dataclass(frozen=True)
class Layers:
    """All layers of a network, packed."""

    input: Packed
    blocks: tuple[Block, ...]
    policy_hidden: Packed
    policy_output: Packed
    value_reduce: Packed
    value_hidden: Packed
    value_output: Packed


class OneDnnForward:
    """AlphaZeroNet on the CPU for batches of one size. See the head of this file."""

    def __init__(self, network: AlphaZeroNet, dtype: torch.dtype, batch_size: int) -> None:
        self.packer = Packer(network.config, network.spec, dtype, batch_size)
        self.board = (network.spec.board_height, network.spec.board_width)
        self.description = f"oneDNN fused convolutions on cpu, {dtype}"
        self.load(fold_tensors(network.state_dict()))

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See Forward; on the CPU nothing depends on addresses, so the layers are packed anew."""
        self.layers = self.packer.pack(folded)

    def __call__(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """See Forward."""
        layers = self.layers
        tower_BCHW = layers.input(planes_BCHW, "relu")
        for block in layers.blocks:
            branch_BCHW = block.first(tower_BCHW, "relu")
            if block.squeeze is None:
                tower_BCHW = block.second.add_to(tower_BCHW, branch_BCHW)
            else:
                tower_BCHW = self._excite(block.squeeze, block.second(branch_BCHW), tower_BCHW)
        policy_BPHW = layers.policy_output(layers.policy_hidden(tower_BCHW, "relu"))
        policy_BQP = policy_BPHW.permute(0, 2, 3, 1).flatten(1, 2).contiguous()
        reduced_BX = layers.value_reduce(tower_BCHW, "relu").permute(0, 2, 3, 1).flatten(1)
        wdl_B3 = layers.value_output.of_rows(layers.value_hidden.of_rows(reduced_BX, "relu"))
        return policy_BQP, wdl_B3

    def _excite(self, squeeze: Squeeze, branch_BCHW: Tensor, skip_BCHW: Tensor) -> Tensor:
        """relu(skip + scale * branch + shift)."""
        # mean(dim=(2, 3)) gives the same and is twice to five times as slow in bf16.
        pooled_BC = functional.avg_pool2d(branch_BCHW, self.board).flatten(1)
        units_BU = squeeze.squeeze.of_rows(pooled_BC, "relu")
        # oneDNN's sigmoid: torch's rounds whole vectors and what is left over differently (in fp32).
        scale_BC11 = squeeze.scale.of_rows(units_BU, "sigmoid")[:, :, None, None]
        shift_BC11 = squeeze.shift.of_rows(units_BU)[:, :, None, None]
        return skip_BCHW.addcmul_(branch_BCHW, scale_BC11).add_(shift_BC11).relu_()


class Packer:
    """Packs folded weights into oneDNN's order, for one network shape and batch size."""

    def __init__(self, config: NetworkConfig, spec: GameSpec, dtype: torch.dtype, batch_size: int) -> None:
        self.config = config
        self.board = (spec.board_height, spec.board_width)
        self.dtype = dtype
        self.batch_size = batch_size

    def pack(self, folded: Mapping[str, Tensor]) -> Layers:
        """Weights by name (folding.fold_tensors) to layers."""
        blocks = tuple(
            Block(
                self._convolution(folded, f"blocks.{number}.first.conv"),
                self._convolution(folded, f"blocks.{number}.second.conv"),
                self._squeeze(folded, f"blocks.{number}.se") if self.config.se_ratio else None,
            )
            for number in range(self.config.blocks)
        )
        hidden_OX = folded["value.hidden.weight"]
        # Columns come as (channel, square), the picture lies as (square, channel).
        squares = self.board[0] * self.board[1]
        hidden_OX = hidden_OX.view(len(hidden_OX), -1, squares).transpose(1, 2).flatten(1)
        return Layers(
            input=self._convolution(folded, "input.conv"),
            blocks=blocks,
            policy_hidden=self._convolution(folded, "policy.hidden.conv"),
            policy_output=self._convolution(folded, "policy.output"),
            value_reduce=self._convolution(folded, "value.reduce.conv"),
            value_hidden=self._fully_connected(hidden_OX, folded["value.hidden.bias"]),
            value_output=self._fully_connected(folded["value.output.weight"], folded["value.output.bias"]),
        )

    def _squeeze(self, folded: Mapping[str, Tensor], name: str) -> Squeeze:
        scale_CU, shift_CU = folded[f"{name}.excite.weight"].chunk(2)
        scale_bias_C, shift_bias_C = folded[f"{name}.excite.bias"].chunk(2)
        return Squeeze(
            self._fully_connected(folded[f"{name}.squeeze.weight"], folded[f"{name}.squeeze.bias"]),
            self._fully_connected(scale_CU, scale_bias_C),
            self._fully_connected(shift_CU, shift_bias_C),
        )

    def _convolution(self, folded: Mapping[str, Tensor], name: str) -> Packed:
        weight = folded[f"{name}.weight"]
        input_shape = [self.batch_size, weight.shape[1], *self.board]
        return self._pack(weight, folded[f"{name}.bias"], weight.shape[2] // 2, input_shape)

    def _fully_connected(self, weight_OC: Tensor, bias_O: Tensor) -> Packed:
        input_shape = [1, weight_OC.shape[1], self.batch_size, 1]
        return self._pack(weight_OC[:, :, None, None], bias_O, 0, input_shape)

    def _pack(self, weight: Tensor, bias: Tensor, pad: int, input_shape: list[int]) -> Packed:
        padding = [pad, pad]
        dense = weight.to("cpu", self.dtype).contiguous(memory_format=torch.channels_last)
        packed = torch.ops.mkldnn._reorder_convolution_weight(dense, padding, ONES, ONES, 1, input_shape)
        # A copy: the layer must not follow the network it came from.
        return Packed(packed, bias.to("cpu", self.dtype, copy=True), padding)
