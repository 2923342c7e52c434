"""A network without search on solved positions: its moves and its predictions against exact truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from alphazero.games.batch import Batch
from alphazero.games.core_types import Line
from alphazero.measure.known_games import Doubles, Predictions
from alphazero.measure.truth.connect4 import SolvedPosition, sign
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.precision import autocast
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, N bytes of a packed position, A policy indices, 3 = win, draw, loss of the mover.


class SolvedPlayer:
    """Plays the network's likeliest move by the module itself, as ZeRO 3 allows no folded or copied one.

    It keeps the predictions of all positions, in order.
    """

    def __init__(self, network: AlphaZeroNet, device: torch.device, precision: str) -> None:
        self._network = network
        self._device = device
        self._precision = precision
        self._logits: list[Doubles] = []  # of the legal moves, a position each
        self._wdl: list[Doubles] = []  # [B, 3] each

    def __call__(self, lines: Sequence[Line]) -> list[int]:
        """The move in each position."""
        first = len(self._logits)
        self.look(lines)
        moves = []
        for line, logits in zip(lines, self._logits[first:], strict=True):
            moves.append(line.index_to_move(int(line.legal_indices()[logits.argmax()])))
        return moves

    @torch.inference_mode()
    def look(self, lines: Sequence[Line]) -> None:
        """Evaluate these positions and keep the predictions."""
        packed_BN = torch.as_tensor(np.stack([line.packed() for line in lines])).to(self._device)
        planes_BCHW = expand_planes(packed_BN, self._network.spec)
        with autocast(self._device, self._precision):
            output = self._network(planes_BCHW)
        policy_BA = output.policy_BA.float().cpu().numpy()
        self._wdl.append(torch.softmax(output.wdl_B3.float(), dim=1).double().cpu().numpy())
        for line, policy_A in zip(lines, policy_BA, strict=True):
            self._logits.append(policy_A[line.legal_indices()].astype(np.float64))

    def against(self, truth: Batch) -> Predictions:
        """The predictions since the last call, with the truth of the same positions."""
        seen = Predictions(truth, np.concatenate(self._logits), np.concatenate(self._wdl))
        self._logits, self._wdl = [], []
        return seen


@dataclass(frozen=True)
class ExactPosition:
    """A position with its exact outcome for the side to move, -1, 0 or 1, and the moves that keep it."""

    line: Line
    outcome: int
    keeping: frozenset[int]


def exact_positions(positions: Sequence[SolvedPosition]) -> list[ExactPosition]:
    """Solved positions with the moves that do not err."""
    return [
        ExactPosition(
            position.line(),
            sign(position.score),
            frozenset(
                column
                for column, score in enumerate(position.move_scores)
                if score is not None and sign(score) >= sign(position.score)
            ),
        )
        for position in positions
    ]


def successors(positions: Sequence[SolvedPosition]) -> list[ExactPosition]:
    """A position after each solved one, by one move after the other in turn.

    The solved ones are those in which a move can err, most of them won: a network that called every position
    won would seem well calibrated on them. What comes after them is won, drawn and lost.
    """
    found = []
    for number, position in enumerate(positions):
        after = []
        for column, score in enumerate(position.move_scores):
            if score is not None:
                line: Line = position.line()
                line.push(column)
                if not line.outcome().over:
                    after.append(ExactPosition(line, -sign(score), frozenset(line.legal())))
        if after:
            found.append(after[number % len(after)])
    return found


def batch_of(positions: Sequence[ExactPosition]) -> Batch:
    """Exact positions as a batch: equal shares for the moves that keep the outcome."""
    packed, legal, policy, wdl = [], [], [], []
    for position in positions:
        line = position.line
        indices = line.legal_indices()
        keeps = [line.index_to_move(int(index)) in position.keeping for index in indices]
        shares = np.array(keeps, np.float32)
        packed.append(line.packed())
        legal.append(indices)
        policy.append(shares / max(1.0, float(shares.sum())))
        wdl.append(np.eye(3, dtype=np.float32)[1 - position.outcome])
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
