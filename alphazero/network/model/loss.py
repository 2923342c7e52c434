"""The loss of a micro-batch: policy and value cross-entropy, moves-left Huber, sums that measure progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from alphazero.network.model.planes import DeviceBatch, dense_target, legal_mask
from alphazero.network.model.resnet import NetworkOutput
from alphazero.settings.sections import LossConfig

Term = TypeVar("Term", Tensor, float)

# Shapes: B positions, A policy indices, 3 = win, draw, loss of the mover.

# Illegal moves get this logit (lczero-training tf/tfprocess.py correct_policy): no share, and finite,
# so that 0 * log(share) stays 0.
ILLEGAL_LOGIT = -1.0e10
# lczero-training tf/tfprocess.py moves_left_loss: plies are divided by 20, Huber's delta is 10 plies.
MOVES_LEFT_SCALE = 20.0
MOVES_LEFT_DELTA = 10.0
# Plies are harder to predict than results, and play does not depend on them.
MOVES_LEFT_WEIGHT = 0.01

# What LossTerms.sums holds, in this order; each a sum over positions.
SUM_NAMES = ("policy", "value", "moves_left", "top1", "top5", "value_squared_error", "positions")


@dataclass(frozen=True)
class LossTerms:
    """Loss of a micro-batch, on the device of the network's output.

    total: the weighted sum of the terms' means, fp32, 0-d, the only one that carries gradients.
    sums: [7] float64, detached, named by SUM_NAMES: summed over micro-batches and ranks, then divided
        by the last, they are the means. policy and value are cross-entropies in nats, moves_left is the
        Huber loss (0 without the head); top1 and top5 count positions whose most probable target move
        is the first, or among the first five, of the network's (a tie counts against the network);
        value_squared_error is ((W - L) - (target W - L))^2, at most 4 (lc0 prints a quarter of it).
    """

    total: Tensor
    sums: Tensor


def loss_terms(config: LossConfig, output: NetworkOutput, batch: DeviceBatch) -> LossTerms:
    """Compare the network's output for B positions with their targets; fp32 inside.

    Policy: cross-entropy of the target over the legal moves. Value: cross-entropy of win, draw, loss. Both as
    lczero-training tf/tfprocess.py (policy_loss, value_loss); moves left as its moves_left_loss.
    """
    with torch.autocast(output.policy_BA.device.type, enabled=False):
        policy_size = output.policy_BA.shape[1]
        logits_BA = output.policy_BA.float()
        mask_BA = legal_mask(batch, policy_size)
        masked_BA = logits_BA.masked_fill(~mask_BA, ILLEGAL_LOGIT)
        target_BA = dense_target(batch, policy_size)
        policy_B = -(target_BA * functional.log_softmax(masked_BA, dim=1)).sum(1)
        wdl_B3 = output.wdl_B3.float()
        value_B = -(batch.wdl_B3 * functional.log_softmax(wdl_B3, dim=1)).sum(1)
        moves_left_B = moves_left_loss(output.moves_left_B1, batch.moves_left_B)
        total = weighted_loss(config, policy_B.mean(), value_B.mean(), moves_left_B.mean())
        with torch.no_grad():
            rank_B = rank_of_target(masked_BA, target_BA)
            rows = (
                policy_B,
                value_B,
                moves_left_B,
                rank_B == 1,
                (rank_B >= 1) & (rank_B <= 5),
                value_squared_error(wdl_B3, batch.wdl_B3),
                torch.ones_like(policy_B),
            )
            sums = torch.stack([row.double().sum() for row in rows])
        return LossTerms(total, sums)


def weighted_loss(config: LossConfig, policy: Term, value: Term, moves_left: Term) -> Term:
    """The loss from its terms."""
    return policy + config.value_weight * value + MOVES_LEFT_WEIGHT * moves_left


def moves_left_loss(predicted_B1: Tensor | None, target_B: Tensor) -> Tensor:
    """Huber loss [B] of plies left, scaled as lczero-training does; zeros without the head."""
    if predicted_B1 is None:
        return torch.zeros_like(target_B)
    return functional.huber_loss(
        predicted_B1.float().squeeze(1) / MOVES_LEFT_SCALE,
        target_B / MOVES_LEFT_SCALE,
        reduction="none",
        delta=MOVES_LEFT_DELTA / MOVES_LEFT_SCALE,
    )


def rank_of_target(masked_BA: Tensor, target_BA: Tensor) -> Tensor:
    """Rank [B] that the logits give the most probable target move: 1 is first; 0 when logits are NaN.

    Moves of equal logit count as if the target were the last of them: a network that rates all
    moves alike has found nothing.
    """
    best_B1 = target_BA.argmax(dim=1, keepdim=True)
    return (masked_BA >= masked_BA.gather(1, best_B1)).sum(1)


def value_squared_error(wdl_logits_B3: Tensor, target_B3: Tensor) -> Tensor:
    """Squared difference [B] of W - L between softmax of the logits and target."""
    share_B3 = functional.softmax(wdl_logits_B3, dim=1)
    return ((share_B3[:, 0] - share_B3[:, 2]) - (target_B3[:, 0] - target_B3[:, 2])).square()
