"""How well a network predicts known games: policy accuracy, losses and value error on positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from alphazero.config import LossConfig
from alphazero.evaluation.predictions import Predictions
from alphazero.games.batch import Batch
from alphazero.network.model.loss import SUM_NAMES, AlphaZeroLoss
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import expand_planes, to_device
from alphazero.network.precision import autocast


@dataclass(frozen=True)
class PositionMetrics:
    """Means over num_positions positions.

    policy_top1, policy_top5: share of positions whose target move is the network's first, or among its
        first five, legal moves; a tie counts against the network.
    policy_loss, value_loss: cross-entropy in nats, over the legal moves and over win, draw, loss.
    value_mse: ((W - L) - result)^2 with results -1, 0, 1; lczero-training prints a quarter of it.
    """

    num_positions: int
    policy_top1: float
    policy_top5: float
    policy_loss: float
    value_loss: float
    value_mse: float


@torch.inference_mode()
def sum_over_positions(
    network: AlphaZeroNet,
    batches: Iterable[Batch],
    device: torch.device,
    precision: str,
    watch: Callable[[Predictions], None] | None = None,
) -> torch.Tensor:
    """Sums over all positions in SUM_NAMES' order, float64 [7] on the CPU; they add up over ranks.

    `network` is used as it is (the caller puts it in eval mode); precision is fp32, bf16 or fp16. watch: told
    what the network says of each batch.
    """
    loss = AlphaZeroLoss(LossConfig())
    total = torch.zeros(len(SUM_NAMES), dtype=torch.float64, device=device)
    for batch in batches:
        on_device = to_device(batch, device)
        planes_BCHW = expand_planes(on_device.packed_BN, network.spec, torch.channels_last)
        with autocast(device, precision):
            output = network(planes_BCHW)
        total += loss(output, on_device).sums
        if watch is not None:
            watch(Predictions.of(output, on_device, batch))
    return total.cpu()


def metrics_of(sums: torch.Tensor) -> PositionMetrics:
    """Means from what `sum_over_positions` gave, over at least one position."""
    named = dict(zip(SUM_NAMES, sums.tolist(), strict=True))
    count = named["positions"]
    return PositionMetrics(
        num_positions=round(count),
        policy_top1=named["top1"] / count,
        policy_top5=named["top5"] / count,
        policy_loss=named["policy"] / count,
        value_loss=named["value"] / count,
        value_mse=named["value_squared_error"] / count,
    )
