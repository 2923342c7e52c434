"""The network's forward pass on the CPU in fp32, bf16 or fp16: oneDNN's fused convolutions.

The operators are those torch.compile emits with frozen weights (torch/_inductor/mkldnn_lowerings.py).
Called by hand they are as fast or faster, need no compiler, and take new weights in milliseconds.

Every layer is a convolution, the fully connected ones too. A matrix product splits its sums by the number
of rows and of threads (MKL in fp32 with 2 threads, oneDNN's matmul in bf16 at 64 rows), so that its result
for one position depends on the batch; a convolution sums each output in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from alphazero.network.inference.forward import fold_tensors
from alphazero.network.model.heads import logits_of_moves
from alphazero.network.model.precision import has_onednn_bf16
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, C channels, H x W board, P policy planes, L numbers of the policy head, O offsets of
# promotions, U units of a squeeze, Q = H * W squares, 3 = win, draw, loss.

ONES = [1, 1]
# Klambauer et al. 2017, arXiv:1706.02515, equation 2; as torch.nn.functional.selu has them.
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@dataclass(frozen=True)
class Packed:
    """A convolution's weight in oneDNN's own order for one input shape, its bias, its padding."""

    weight: Tensor
    bias: Tensor
    padding: list[int]

    def __call__(self, input_BCHW: Tensor, activation: str = "none") -> Tensor:
        """Convolution, bias, activation (none, relu, sigmoid, tanh) in one pass."""
        output_BCHW: Tensor = torch.ops.mkldnn._convolution_pointwise(
            input_BCHW, *self._convolution(), activation, [], ""
        )
        return output_BCHW

    def add_to(self, sum_BCHW: Tensor, input_BCHW: Tensor) -> Tensor:
        """relu(sum + convolution) in one pass; `sum` is used up."""
        output_BCHW: Tensor = torch.ops.mkldnn._convolution_pointwise_.binary(
            sum_BCHW, input_BCHW, *self._convolution(), "add", 1.0, "relu", [], ""
        )
        return output_BCHW

    def _convolution(self) -> tuple[Any, ...]:
        """Weight and bias, padding, stride, dilation, groups."""
        return self.weight, self.bias, self.padding, ONES, ONES, 1

    def of_rows(self, rows_BC: Tensor, activation: str = "none") -> Tensor:
        """A fully connected layer: [B, C] -> [B, C'], the rows as the squares of one picture."""
        return rows_of(self(picture_of(rows_BC), activation))

    def of_rows_added(self, rows_BC: Tensor, added_BC: Tensor, activation: str) -> Tensor:
        """The same, with numbers [B, C'] added before the activation (none, relu)."""
        output_1CB1 = torch.ops.mkldnn._convolution_pointwise.binary(
            *(picture_of(rows_BC), picture_of(added_BC), *self._convolution()),
            *("add", 1.0, None if activation == "none" else activation, [], ""),
        )
        return rows_of(output_1CB1)


def picture_of(rows_BC: Tensor) -> Tensor:
    """Rows as the squares of one picture."""
    batch_size, channels = rows_BC.shape
    return rows_BC.view(1, batch_size, 1, channels).permute(0, 3, 1, 2)


def rows_of(picture_1CB1: Tensor) -> Tensor:
    """And back: [B, C], contiguous."""
    return picture_1CB1.permute(0, 2, 3, 1).reshape(picture_1CB1.shape[2], -1)


@dataclass(frozen=True)
class Squeeze:
    """Squeeze-excitation, the second layer in its two halves, for a board of H x W."""

    squeeze: Packed
    scale: Packed
    shift: Packed
    board: tuple[int, int]

    def excite(self, branch_BCHW: Tensor, skip_BCHW: Tensor) -> Tensor:
        """relu(skip + scale * branch + shift); `skip` is used up."""
        scale_BC, shift_BC = self.scale_and_shift(branch_BCHW)
        scale_BC11, shift_BC11 = scale_BC[:, :, None, None], shift_BC[:, :, None, None]
        return skip_BCHW.addcmul_(branch_BCHW, scale_BC11).add_(shift_BC11).relu_()

    def scale_and_shift(self, branch_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Both [B, C]."""
        # mean(dim=(2, 3)) gives the same and is twice to five times as slow in bf16.
        pooled_BC = functional.avg_pool2d(branch_BCHW, self.board).flatten(1)
        units_BU = self.squeeze.of_rows(pooled_BC, "relu")
        # oneDNN's sigmoid: torch's rounds whole vectors and what is left over differently (in fp32).
        return self.scale.of_rows(units_BU, "sigmoid"), self.shift.of_rows(units_BU)


@dataclass(frozen=True)
class Block:
    """A residual block."""

    first: Packed
    second: Packed
    squeeze: Squeeze | None

    def __call__(self, tower_BCHW: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, H, W]; the input is used up."""
        branch_BCHW = self.first(tower_BCHW, "relu")
        if self.squeeze is None:
            return self.second.add_to(tower_BCHW, branch_BCHW)
        return self.squeeze.excite(self.second(branch_BCHW), tower_BCHW)


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


class OneDnnForward:
    """AlphaZeroNet on the CPU for batches of one size. See the head of this file."""

    def __init__(self, network: AlphaZeroNet, dtype: torch.dtype, batch_size: int) -> None:
        self.config = network.config
        self.board = (network.spec.board_height, network.spec.board_width)
        self.dtype, self.batch_size = dtype, batch_size
        self.description = f"oneDNN fused convolutions on cpu, {dtype}"
        self.load(fold_tensors(network.state_dict()))

    def __call__(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """See ModuleForward."""
        tower_BCHW = self.input(planes_BCHW, "relu")
        for block in self.blocks:
            tower_BCHW = block(tower_BCHW)
        reduced_BX = self.value_reduce(tower_BCHW, "relu").permute(0, 2, 3, 1).flatten(1)
        wdl_B3 = self.value_output.of_rows(self.value_hidden.of_rows(reduced_BX, "relu"))
        return self.policy(tower_BCHW), wdl_B3

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See ModuleForward; on the CPU nothing depends on addresses, so the layers are packed again."""
        self.input = self._convolution(folded, "input.conv")
        self.blocks = tuple(
            Block(
                self._convolution(folded, f"blocks.{number}.first.conv"),
                self._convolution(folded, f"blocks.{number}.second.conv"),
                self._squeeze(folded, f"blocks.{number}") if self.config.se_ratio else None,
            )
            for number in range(self.config.blocks)
        )
        self.policy = self._policy(folded)
        self.value_reduce = self._convolution(folded, "value.reduce.conv")
        self.value_hidden = self._of_picture(folded, "value.hidden")
        self.value_output = self._fully_connected(folded["value.output.weight"], folded["value.output.bias"])

    def _policy(self, folded: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """The policy head without its gather: tower to [B, L]."""
        if self.config.policy_head == "attention":
            return self._attention_policy(folded)
        if "policy.reduce.conv.weight" in folded:
            return self._linear_policy(folded)
        hidden = self._convolution(folded, "policy.hidden.conv")
        output = self._convolution(folded, "policy.output")

        def planes(tower_BCHW: Tensor) -> Tensor:
            planes_BPHW = output(hidden(tower_BCHW, "relu"))
            return planes_BPHW.permute(0, 2, 3, 1).flatten(1).contiguous()

        return planes

    def _linear_policy(self, folded: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        reduce = self._convolution(folded, "policy.reduce.conv")
        output = self._of_picture(folded, "policy.output")
        return lambda tower: output.of_rows(reduce(tower, "relu").permute(0, 2, 3, 1).flatten(1))

    def _of_picture(self, folded: Mapping[str, Tensor], name: str) -> Packed:
        """A fully connected layer of a picture: its columns come as (channel, square)."""
        weight_OX = folded[f"{name}.weight"]
        squares = self.board[0] * self.board[1]
        weight_OX = weight_OX.view(len(weight_OX), -1, squares).transpose(1, 2).flatten(1)
        return self._fully_connected(weight_OX, folded[f"{name}.bias"])

    def _attention_policy(self, folded: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        weight_CC, bias_C = folded["policy.embed.weight"], folded["policy.embed.bias"]
        embed, half_embed = self._at_squares(weight_CC, bias_C), self._at_squares(weight_CC / 2, bias_C / 2)
        query = self._at_squares(folded["policy.query.weight"], folded["policy.query.bias"])
        key = self._at_squares(folded["policy.key.weight"], folded["policy.key.bias"])
        promotion_OC = folded["policy.promotion.weight"].to("cpu", self.dtype, copy=True)

        def all_moves(tower_BCHW: Tensor) -> Tensor:
            # SELU by oneDNN's tanh, exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2): torch's exp, as its
            # sigmoid, rounds whole vectors and what is left over differently.
            half_BCHW = half_embed(tower_BCHW, "tanh")
            below_BCHW = (2 * half_BCHW / (1 - half_BCHW)).clamp_(max=0).mul_(SELU_SCALE * SELU_ALPHA)
            embedded_BCHW = embed(tower_BCHW, "relu").mul_(SELU_SCALE).add_(below_BCHW)
            query_BQC, key_BQC = (
                layer(embedded_BCHW).permute(0, 2, 3, 1).flatten(1, 2) for layer in (query, key)
            )
            return logits_of_moves(query_BQC, key_BQC, promotion_OC, tower_BCHW.shape[3])

        return all_moves

    def _squeeze(self, folded: Mapping[str, Tensor], block: str) -> Squeeze:
        scale_CU, shift_CU = folded[f"{block}.se.excite.weight"].chunk(2)
        scale_bias_C, shift_bias_C = folded[f"{block}.se.excite.bias"].chunk(2)
        return Squeeze(
            self._fully_connected(folded[f"{block}.se.squeeze.weight"], folded[f"{block}.se.squeeze.bias"]),
            self._fully_connected(scale_CU, scale_bias_C),
            self._fully_connected(shift_CU, shift_bias_C),
            self.board,
        )

    def _convolution(self, folded: Mapping[str, Tensor], name: str) -> Packed:
        weight = folded[f"{name}.weight"]
        input_shape = [self.batch_size, weight.shape[1], *self.board]
        return pack(weight, folded[f"{name}.bias"], weight.shape[2] // 2, input_shape, self.dtype)

    def _at_squares(self, weight_OC: Tensor, bias_O: Tensor) -> Packed:
        """A fully connected layer for each square: a convolution of one square."""
        input_shape = [self.batch_size, weight_OC.shape[1], *self.board]
        return pack(weight_OC[:, :, None, None], bias_O, 0, input_shape, self.dtype)

    def _fully_connected(self, weight_OC: Tensor, bias_O: Tensor) -> Packed:
        input_shape = [1, weight_OC.shape[1], self.batch_size, 1]
        return pack(weight_OC[:, :, None, None], bias_O, 0, input_shape, self.dtype)


def pack(weight: Tensor, bias: Tensor, pad: int, input_shape: list[int], dtype: torch.dtype) -> Packed:
    """A convolution's weight in oneDNN's order."""
    padding = [pad, pad]
    dense = weight.to("cpu", dtype).contiguous(memory_format=torch.channels_last)
    packed = torch.ops.mkldnn._reorder_convolution_weight(dense, padding, ONES, ONES, 1, input_shape)
    # A copy: the layer must not follow the network it came from.
    return Packed(packed, bias.to("cpu", dtype, copy=True), padding)
