"""The network's forward pass on the CPU, in fp32, bf16 or fp16, of the layers of onednn_layers.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from alphazero.config import NetworkConfig
from alphazero.games.spec import GameSpec
from alphazero.network.inference.folding import fold_tensors
from alphazero.network.inference.onednn_layers import (
    ONES,
    AttentionPolicy,
    Block,
    Convolution,
    ConvolutionalPolicy,
    Excitation,
    Layers,
    Packed,
    Squeeze,
)
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.precision import has_onednn_bf16


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
        self.packer = Packer(network.config, network.spec, dtype, batch_size)
        self.description = f"oneDNN fused convolutions on cpu, {dtype}"
        self.load(fold_tensors(network.state_dict()))

    @torch.no_grad()
    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See Forward; on the CPU nothing depends on addresses, so the layers are packed anew."""
        self.layers = self.packer.pack(folded)

    def __call__(self, planes_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """See Forward."""
        return self.layers(planes_BCHW)


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
                self._excitation(folded, number) if self.config.se_ratio else None,
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
            policy=self._policy(folded),
            value_reduce=self._convolution(folded, "value.reduce.conv"),
            value_hidden=self._fully_connected(hidden_OX, folded["value.hidden.bias"]),
            value_output=self._fully_connected(folded["value.output.weight"], folded["value.output.bias"]),
        )

    def _policy(self, folded: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        if self.config.policy_head == "convolution":
            return ConvolutionalPolicy(
                self._convolution(folded, "policy.hidden.conv"), self._convolution(folded, "policy.output")
            )
        weight_CC, bias_C = folded["policy.embed.weight"], folded["policy.embed.bias"]
        return AttentionPolicy(
            embed=self._at_squares(weight_CC, bias_C),
            half_embed=self._at_squares(weight_CC / 2, bias_C / 2),
            query=self._at_squares(folded["policy.query.weight"], folded["policy.query.bias"]),
            key=self._at_squares(folded["policy.key.weight"], folded["policy.key.bias"]),
            promotion_OC=folded["policy.promotion.weight"].to("cpu", self.dtype, copy=True),
        )

    def _excitation(self, folded: Mapping[str, Tensor], number: int) -> Excitation:
        """Of block `number`."""
        return self._squeeze(folded, f"blocks.{number}.se")

    def _squeeze(self, folded: Mapping[str, Tensor], name: str) -> Squeeze:
        scale_CU, shift_CU = folded[f"{name}.excite.weight"].chunk(2)
        scale_bias_C, shift_bias_C = folded[f"{name}.excite.bias"].chunk(2)
        return Squeeze(
            self._fully_connected(folded[f"{name}.squeeze.weight"], folded[f"{name}.squeeze.bias"]),
            self._fully_connected(scale_CU, scale_bias_C),
            self._fully_connected(shift_CU, shift_bias_C),
            self.board,
        )

    def _convolution(self, folded: Mapping[str, Tensor], name: str) -> Convolution:
        weight = folded[f"{name}.weight"]
        input_shape = [self.batch_size, weight.shape[1], *self.board]
        return self._pack(weight, folded[f"{name}.bias"], weight.shape[2] // 2, input_shape)

    def _at_squares(self, weight_OC: Tensor, bias_O: Tensor) -> Packed:
        """A fully connected layer for each square: a convolution of one square."""
        input_shape = [self.batch_size, weight_OC.shape[1], *self.board]
        return self._pack(weight_OC[:, :, None, None], bias_O, 0, input_shape)

    def _fully_connected(self, weight_OC: Tensor, bias_O: Tensor) -> Packed:
        input_shape = [1, weight_OC.shape[1], self.batch_size, 1]
        return self._pack(weight_OC[:, :, None, None], bias_O, 0, input_shape)

    def _pack(self, weight: Tensor, bias: Tensor, pad: int, input_shape: list[int]) -> Packed:
        padding = [pad, pad]
        dense = weight.to("cpu", self.dtype).contiguous(memory_format=torch.channels_last)
        packed = torch.ops.mkldnn._reorder_convolution_weight(dense, padding, ONES, ONES, 1, input_shape)
        # A copy: the layer must not follow the network it came from.
        return Packed(packed, bias.to("cpu", self.dtype, copy=True), padding)
