"""Positions with exact values of their moves: who errs in them, and a network without search beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from alphazero.games.batch import Batch
from alphazero.games.core_types import Line
from alphazero.games.lines import leaves_of
from alphazero.measure.known_games import Doubles, Predictions
from alphazero.network.model.planes import expand_planes
from alphazero.network.model.precision import autocast
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.matches.players import ChooseMoves

# Shapes: B positions, N bytes of a packed position, A policy indices, 3 = win, draw, loss of the mover.


@dataclass(frozen=True)
class ExactPosition:
    """A position that is not over. score: for the side to move; its sign is the outcome, as best play has it.

    move_scores: of each legal move for the side that makes it; empty where they are not known. moves: to the
    position, as files of Connect Four have them.
    """

    line: Line
    score: int
    move_scores: Mapping[int, int]
    moves: str = ""

    @property
    def outcome(self) -> int:
        """-1, 0 or 1."""
        return sign(self.score)

    @property
    def keeping(self) -> frozenset[int]:
        """The moves that keep the outcome, as far as they are known."""
        return frozenset(move for move, score in self.move_scores.items() if sign(score) >= self.outcome)

    @property
    def may_err(self) -> bool:
        """Whether a move makes the outcome worse, as far as the moves are known."""
        return not self.move_scores or len(self.keeping) < len(self.move_scores)

    def after(self, number: int) -> ExactPosition | None:
        """The position after one of the moves that do not end the game, the next one for each number."""
        positions = []
        for move, score in self.move_scores.items():
            line = self.line.copy()
            line.push(move)
            if not line.outcome().over:
                is_same = line.first_player_to_move == self.line.first_player_to_move
                outcome = sign(score) if is_same else -sign(score)
                positions.append(ExactPosition(line, outcome, dict.fromkeys(line.legal(), outcome)))
        return positions[number % len(positions)] if positions else None


@dataclass(frozen=True)
class SolvedSet:
    """Positions of one class."""

    name: str
    positions: tuple[ExactPosition, ...]


# A move in a position, and the outcomes of such moves in order, each for the side that moves: -1, 0 or 1.
SolvedMove: TypeAlias = tuple[ExactPosition, int]
Outcomes: TypeAlias = Callable[[Sequence[SolvedMove]], Iterable[int]]


def sign(score: int) -> int:
    """-1 lost, 0 drawn, 1 won."""
    return (score > 0) - (score < 0)


def find_errors(
    positions: Sequence[ExactPosition], player: ChooseMoves, solve: Outcomes = lambda questions: []
) -> list[bool]:
    """Whether the player's move in each position has a worse outcome than the position; never in a lost one.

    The player is not asked where all moves are known to be equally good. solve: of moves that are not known.
    """
    asked = [number for number, position in enumerate(positions) if position.may_err]
    moves = player([positions[number].line for number in asked]) if asked else []
    chosen = {number: move for number, move in zip(asked, moves, strict=True) if positions[number].score >= 0}
    unknown = [number for number in chosen if not positions[number].move_scores]
    solved = zip(unknown, solve([(positions[number], chosen[number]) for number in unknown]), strict=True)
    outcomes = dict(solved)
    errs = [False] * len(positions)
    for number, move in chosen.items():
        position = positions[number]
        outcome = outcomes[number] if number in outcomes else sign(position.move_scores[move])
        errs[number] = outcome < position.outcome
    return errs


def move_errors(sets: Sequence[SolvedSet], player: ChooseMoves) -> dict[str, float]:
    """`move_error`, the share of wrong moves over all positions, and by class where there are several."""
    errors = {entry.name: sum(find_errors(entry.positions, player)) for entry in sets}
    total = sum(len(entry.positions) for entry in sets)
    figures = {"move_error": sum(errors.values()) / total}
    if len(sets) > 1:
        for entry in sets:
            name = f"move_error_{entry.name.replace('-', '_')}"
            figures[name] = errors[entry.name] / len(entry.positions)
    return figures


def successors(positions: Sequence[ExactPosition]) -> list[ExactPosition]:
    """A position after each, by one move after the other in turn.

    Most positions in which a move can err are won: a network that called every position won would seem well
    calibrated on them. What comes after them is won, drawn and lost.
    """
    reached = (position.after(number) for number, position in enumerate(positions))
    return [position for position in reached if position is not None]


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


def batch_of(positions: Sequence[ExactPosition]) -> Batch:
    """Exact positions as a batch: equal shares for the moves that keep the outcome."""
    packed, legal, offset = leaves_of([position.line for position in positions])
    policy = []
    for position, begin, end in zip(positions, offset, offset[1:], strict=False):
        moves = map(position.line.index_to_move, legal[begin:end].tolist())
        shares = np.array([move in position.keeping for move in moves], np.float32)
        policy.append(shares / max(1.0, float(shares.sum())))
    return Batch(
        packed,
        offset,
        legal,
        np.concatenate(policy),
        np.eye(3, dtype=np.float32)[[1 - position.outcome for position in positions]],
        np.zeros(len(positions), np.float32),
        np.arange(len(positions), dtype=np.int64),
    )
