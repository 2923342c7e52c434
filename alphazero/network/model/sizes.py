"""How large a network is, by arithmetic alone: its numbers, its operations, its bytes while it trains.

No weight is made: the network lies on torch's device "meta", where tensors have shapes and no numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

FLOAT_BYTES = 4  # weights, gradients and moments are fp32 in every precision
STAGES = (0, 1, 2, 3)
CHECKPOINTINGS = ("none", "scores", "encoders")
# A backward pass costs two forward passes.
PASSES_OF_STEP = 3
# ZeRO 3 keeps whole what has no more numbers: param_persistence_threshold of DeepSpeed 0.19.8
# (deepspeed/runtime/zero/config.py).
KEPT_WHOLE = 100_000
# What autocast computes in bf16 and in fp32 on a GPU (torch's aten/src/ATen/autocast_mode.h), of what
# networks here call.
IN_BF16 = {"linear", "conv2d", "matmul", "__matmul__", "scaled_dot_product_attention"}
IN_FP32 = {"layer_norm", "softmax", "log_softmax"}


@dataclass(frozen=True)
class NetworkSize:
    """parameters: trained numbers.

    flop: operations of a position's forward pass. kept_bytes: per position, at the fullest moment of a
    training step in bf16 on a GPU, by what is computed again (activation_checkpointing); a tower has "none".
    """

    parameters: int
    flop: int
    kept_bytes: Mapping[str, int]

    @property
    def step_flop(self) -> int:
        """Operations of a position in a training step."""
        return PASSES_OF_STEP * self.flop


def size_of(config: NetworkConfig) -> NetworkSize:
    """Raises ConfigError where no network can have this shape."""
    kinds = CHECKPOINTINGS if config.body == "attention" else CHECKPOINTINGS[:1]
    return NetworkSize(
        parameters=on_meta_device(config).parameter_count(),
        flop=forward_flops(config),
        kept_bytes={kind: kept_bytes(config, kind) for kind in kinds},
    )


def on_meta_device(config: NetworkConfig) -> AlphaZeroNet:
    """A network that has shapes and no numbers."""
    with torch.device("meta"):
        return AlphaZeroNet(config, get_spec(config.game)).eval().to("meta")  # with the constants of the game


def rank_bytes(network: nn.Module, moments: int, stage: int, num_ranks: int) -> int:
    """What a rank keeps between two passes of a step: weights, gradients, masters and optimizer state.

    moments: numbers that the optimizer keeps. Stage 0 has all of it and no masters. Above it the optimizer's
    own copy of the weights and its state are shared out, from stage 2 on the gradients too, at stage 3 the
    weights. Beside it are buckets, activations and, at stage 3, weights that are gathered for a layer.
    """
    sizes = [parameter.numel() for parameter in network.parameters()]
    weights, shared = sum(sizes), sum(sizes) + moments
    small = sum(size for size in sizes if size <= KEPT_WHOLE)
    numbers = {
        0: 2 * weights + moments,
        1: 2 * weights + _share(shared, num_ranks),
        2: weights + _share(weights + shared, num_ranks),
        3: small + _share(2 * weights + shared, num_ranks),
    }
    return FLOAT_BYTES * numbers[stage]


def _share(numbers: int, num_ranks: int) -> int:
    return -(-numbers // num_ranks)


def forward_flops(config: NetworkConfig) -> int:
    """Operations of one position's forward pass: convolutions and matrix products, two a multiply-add."""
    return _over_blocks(config, _count_flops)


def kept_bytes(config: NetworkConfig, checkpointing: str) -> int:
    """Per position, with what the backward pass computes again for the encoder that it is in."""
    kept = _over_blocks(config, lambda some: _kept_by_forward(some, checkpointing))
    if checkpointing == "none":
        return kept
    one = dataclasses.replace(config, blocks=1)
    return kept + _kept_by_forward(one, "none") - _kept_by_forward(one, checkpointing)


def _over_blocks(config: NetworkConfig, count: Callable[[NetworkConfig], int]) -> int:
    """What `count` finds, from one block and two: all blocks of a body are alike."""
    one, two = (count(dataclasses.replace(config, blocks=blocks)) for blocks in (1, 2))
    return one + (config.blocks - 1) * (two - one)


def _count_flops(config: NetworkConfig) -> int:
    network = on_meta_device(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(_planes(network, 1))
    return int(counter.get_total_flops())


def _kept_by_forward(config: NetworkConfig, checkpointing: str) -> int:
    """Growth with each position: so weights and their copies in bf16 do not count."""
    network = on_meta_device(config).train()
    if config.body == "attention":
        network.body.checkpointing = checkpointing
    few, many = (_saved_bytes(network, num_positions) for num_positions in (2, 3))
    return many - few


def _saved_bytes(network: AlphaZeroNet, num_positions: int) -> int:
    """All that autograd keeps of a forward pass up to the loss, each piece of memory once."""
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = (
            storage  # meta tensors have no address; while it is held, none is used twice
        )
        return tensor

    with _Autocast(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(_planes(network, num_positions))
        losses = [logits.float().log_softmax(1) for logits in (output.policy_BA, output.wdl_B3)]
    size = sum(storage.nbytes() for storage in storages.values())
    del losses
    return size


def _planes(network: AlphaZeroNet, num_positions: int) -> Tensor:
    spec = network.spec
    return torch.zeros(num_positions, spec.num_planes, spec.board_height, spec.board_width, device="meta")


class _Autocast(TorchFunctionMode):
    """bf16 where autocast has it on a GPU: torch's own knows no device "meta".

    Attention is by the kernel that torch takes for a mask with a gradient: it keeps the mask and no scores.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        """Call `func` with its tensors in the type that autocast gives them."""
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name not in IN_BF16 | IN_FP32:
            return func(*args, **given)
        dtype = torch.bfloat16 if name in IN_BF16 else torch.float32
        cast = [_cast(value, dtype) for value in args]
        given = {key: _cast(value, dtype) for key, value in given.items()}
        if name != "scaled_dot_product_attention":
            return func(*cast, **given)
        attention = torch.ops.aten._scaled_dot_product_efficient_attention
        return attention(*cast, given.get("attn_mask"), compute_log_sumexp=True)[0]


def _cast(value: object, dtype: torch.dtype) -> object:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
