"""A network alone on solved positions: the moves it would play, and its word held against exact truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from alphazero.evaluation.predictions import Predictions
from alphazero.evaluation.solved import SolvedPosition, sign
from alphazero.games.batch import Batch
from alphazero.games.core_types import Line
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import expand_planes
from alphazero.network.precision import autocast

# Shapes: B positions, N bytes of a packed position, A policy indices, 3 = win, draw, loss of the mover.


class SolvedPlayer:
    """The network's likeliest move, by the module as it is: at ZeRO 3 nothing can be folded or copied.

    It remembers what the network said of all positions it was asked, in their order.
    """

    def __init__(self, network: AlphaZeroNet, device: torch.device, precision: str) -> None:
        self._network = network
        self._device = device
        self._precision = precision
        self._logits: list[np.ndarray] = []  # of the legal moves, a position each
        self._wdl: list[np.ndarray] = []  # [B, 3] each

    @torch.inference_mode()
    def __call__(self, lines: Sequence[Line]) -> list[int]:
        """Its moves."""
        packed_BN = torch.as_tensor(np.stack([line.packed() for line in lines])).to(self._device)
        planes_BCHW = expand_planes(packed_BN, self._network.spec, torch.channels_last)
        with autocast(self._device, self._precision):
            output = self._network(planes_BCHW)
        policy_BA = output.policy_BA.float().cpu().numpy()
        self._wdl.append(torch.softmax(output.wdl_B3.float(), dim=1).double().cpu().numpy())
        moves = []
        for line, policy_A in zip(lines, policy_BA, strict=True):
            legal = line.legal_indices()
            self._logits.append(policy_A[legal].astype(np.float64))
            moves.append(line.index_to_move(int(legal[policy_A[legal].argmax()])))
        return moves

    def against(self, positions: Sequence[SolvedPosition]) -> Predictions:
        """What was said of `positions`, which are all that were asked; targets are all moves that do not err."""
        batch = solved_batch(positions)
        return Predictions(batch, np.concatenate(self._logits), np.concatenate(self._wdl))


def solved_batch(positions: Sequence[SolvedPosition]) -> Batch:
    """Solved positions as a batch: the best outcome as result, equal shares for the moves that keep it."""
    packed, legal, policy, wdl = [], [], [], []
    for position in positions:
        line = position.line()
        indices = line.legal_indices()
        keeps = np.array([_keeps(position, line.index_to_move(int(index))) for index in indices], np.float32)
        packed.append(line.packed())
        legal.append(indices)
        policy.append(keeps / max(1.0, keeps.sum()))
        wdl.append(np.eye(3, dtype=np.float32)[1 - sign(position.score)])
    lengths = [len(indices) for indices in legal]
    return Batch(
        np.stack(packed),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        np.concatenate(legal).astype(np.int32),
        np.concatenate(policy),
        np.stack(wdl),
        np.zeros(len(positions), np.float32),
        np.arange(len(positions), dtype=np.int64),
    )


def _keeps(position: SolvedPosition, column: int) -> bool:
    """Does the move keep the position's outcome?"""
    score = position.move_scores[column]
    return score is not None and sign(score) >= sign(position.score)
