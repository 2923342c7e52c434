"""How well a network predicts known games: accuracy, losses, value error, calibration, phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from alphazero.games.batch import Batch
from alphazero.games.registry import CHESS, GameSpec
from alphazero.network.model.loss import SUM_NAMES, loss_terms
from alphazero.network.model.planes import DeviceBatch, expand_planes, to_device
from alphazero.network.model.precision import autocast
from alphazero.network.model.resnet import AlphaZeroNet, NetworkOutput
from alphazero.run.validation_record import Bins, PhaseFigures
from alphazero.settings.sections import LossConfig

# Shapes: B positions, N bytes of a packed position, P bit planes.

NUM_PHASES = 3
# Chess: knights, bishops, rooks and queens of both sides, of which a game begins with 14.
_PIECE_PLANES = (1, 2, 3, 4, 7, 8, 9, 10)
_OPENING_PIECES, _MIDDLEGAME_PIECES = 12, 7
# Other games: the planes of the two sides' stones.
_STONE_PLANES = (0, 1)


def phase_names(spec: GameSpec) -> tuple[str, str, str]:
    """The names of the phases, in order."""
    if spec.name == CHESS:
        return ("opening", "middlegame", "endgame")
    return ("first third", "second third", "last third")


def phases_of(packed_BN: npt.NDArray[np.uint8], spec: GameSpec) -> npt.NDArray[np.int64]:
    """The phase of each position, 0, 1 or 2, from its packed planes."""
    if spec.num_float_planes:  # no planes of pieces to count
        return np.zeros(len(packed_BN), np.int64)
    planes_BP8 = packed_BN[:, : 8 * spec.num_bit_planes].reshape(len(packed_BN), spec.num_bit_planes, 8)
    chosen = _PIECE_PLANES if spec.name == CHESS else _STONE_PLANES
    count_B = np.unpackbits(planes_BP8[:, chosen], axis=2).sum(axis=(1, 2)).astype(np.int64)
    if spec.name == CHESS:
        edges = (-_OPENING_PIECES, -_MIDDLEGAME_PIECES)
        phase_B: npt.NDArray[np.int64] = np.searchsorted(edges, -count_B)
        return phase_B
    squares = spec.board_height * spec.board_width
    phase_B = np.minimum(count_B * NUM_PHASES // squares, NUM_PHASES - 1)
    return phase_B


# Shapes: B positions, K legal moves over all of them, 3 = win, draw, loss of the mover.

NUM_BINS = 20
_BIN_SUMS = 3  # count, predicted, actual
_PHASE_SUMS = 4  # positions, right moves, policy loss, squared error of W - L
_NUM_BIN_SUMS = 2 * NUM_BINS * _BIN_SUMS
NUM_TALLIES = _NUM_BIN_SUMS + NUM_PHASES * _PHASE_SUMS

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """B positions with their targets and a network's predictions.

    logit_K: f64, of the legal moves as batch.legal_index has them. wdl_B3: f64, shares.
    """

    batch: Batch
    logit_K: Doubles
    wdl_B3: Doubles

    @classmethod
    def of(cls, output: NetworkOutput, on_device: DeviceBatch, batch: Batch) -> Predictions:
        """From the output for `batch`; waits for the device."""
        logit_K = output.policy_BA[on_device.row_K, on_device.legal_index_K]
        wdl_B3 = torch.softmax(output.wdl_B3.float(), dim=1)
        return cls(batch, logit_K.double().cpu().numpy(), wdl_B3.double().cpu().numpy())

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """The position of each legal move, [K]."""
        lengths = np.diff(self.batch.legal_offset)
        return np.repeat(np.arange(len(lengths)), lengths)

    @cached_property
    def shares(self) -> Doubles:
        """The network's share of each legal move, [K]."""
        begin = self.batch.legal_offset[:-1]
        weight_K = np.exp(self.logit_K - np.maximum.reduceat(self.logit_K, begin)[self.rows])
        shares: Doubles = weight_K / np.add.reduceat(weight_K, begin)[self.rows]
        return shares

    @cached_property
    def policy_loss(self) -> Doubles:
        """Cross-entropy in nats, [B]."""
        loss_K = self.batch.policy * -np.log(np.maximum(self.shares, 1e-30))
        sums: Doubles = np.add.reduceat(loss_K, self.batch.legal_offset[:-1])
        return sums

    @cached_property
    def is_right(self) -> npt.NDArray[np.bool_]:
        """Does the network's first move have the target's largest share, [B]? A tie counts as wrong."""
        begin = self.batch.legal_offset[:-1]
        is_first_K = self.logit_K >= np.maximum.reduceat(self.logit_K, begin)[self.rows]
        is_best_K = self.batch.policy >= np.maximum.reduceat(self.batch.policy, begin)[self.rows]
        has_first_B = np.logical_or.reduceat(is_first_K, begin)  # not where logits are NaN
        right: npt.NDArray[np.bool_] = has_first_B & ~np.logical_or.reduceat(is_first_K & ~is_best_K, begin)
        return right

    @cached_property
    def value(self) -> Doubles:
        """W - L as predicted, [B]."""
        values: Doubles = self.wdl_B3[:, 0] - self.wdl_B3[:, 2]
        return values

    @cached_property
    def target_value(self) -> Doubles:
        """W - L as it is, [B]."""
        wdl_B3 = self.batch.wdl.astype(np.float64)
        values: Doubles = wdl_B3[:, 0] - wdl_B3[:, 2]
        return values

    def moves(self, position: int, count: int) -> list[tuple[int, float]]:
        """The network's first `count` moves of a position as policy indices, with their shares."""
        begin, end = self.batch.legal_offset[position : position + 2]
        order = np.argsort(-self.shares[begin:end], kind="stable")[:count] + begin
        return [(int(self.batch.legal_index[move]), float(self.shares[move])) for move in order]

    def target_move(self, position: int) -> tuple[int, float]:
        """The target's first move as a policy index, and the share that the network gives it."""
        begin, end = self.batch.legal_offset[position : position + 2]
        move = begin + int(self.batch.policy[begin:end].argmax())
        return int(self.batch.legal_index[move]), float(self.shares[move])


def tallies_of(seen: Predictions, spec: GameSpec) -> torch.Tensor:
    """Sums over positions, f64 [NUM_TALLIES], to be added over batches and ranks: see bins_of, phases_in."""
    wdl_B3, target_B3 = seen.wdl_B3, seen.batch.wdl.astype(np.float64)
    finite_B = np.isfinite(wdl_B3).all(axis=1)
    wdl_B3, target_B3 = wdl_B3[finite_B], target_B3[finite_B]
    sums = [
        *_bin_sums(wdl_B3[:, 0] + wdl_B3[:, 1] / 2, target_B3[:, 0] + target_B3[:, 1] / 2),
        *_bin_sums(wdl_B3[:, 1], target_B3[:, 1]),
    ]
    phase_B = phases_of(seen.batch.packed, spec)
    squared_B = (seen.value - seen.target_value) ** 2
    for phase in range(NUM_PHASES):
        chosen = phase_B == phase
        for row_B in (np.ones(len(phase_B)), seen.is_right, seen.policy_loss, squared_B):
            sums.append(float(row_B[chosen].sum()))
    return torch.tensor(sums, dtype=torch.float64)


def _bin_sums(predicted_B: Doubles, actual_B: Doubles) -> list[float]:
    bin_B = np.clip((predicted_B * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
    rows = (None, predicted_B, actual_B)
    return [float(x) for row_B in rows for x in np.bincount(bin_B, weights=row_B, minlength=NUM_BINS)]


def bins_of(tallies: torch.Tensor) -> tuple[Bins, Bins]:
    """Calibration of the expected score, and of the chance of a draw."""
    of_score, of_draw = tallies[:_NUM_BIN_SUMS].view(2, _BIN_SUMS, NUM_BINS)
    return _bins(of_score), _bins(of_draw)


def _bins(sums: torch.Tensor) -> Bins:
    count, predicted, actual = sums
    mean = [(row / count.clamp(min=1)).tolist() for row in (predicted, actual)]
    return Bins(tuple(round(number) for number in count.tolist()), tuple(mean[0]), tuple(mean[1]))


def phases_in(tallies: torch.Tensor, spec: GameSpec) -> tuple[PhaseFigures, ...]:
    """The figures of each phase that has positions."""
    phases = []
    for name, row in zip(
        phase_names(spec), tallies[_NUM_BIN_SUMS:].view(NUM_PHASES, _PHASE_SUMS).tolist(), strict=True
    ):
        if count := round(row[0]):
            phases.append(PhaseFigures(name, count, *(entry / count for entry in row[1:])))
    return tuple(phases)


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

    The caller puts `network` in eval mode; precision is fp32, bf16 or fp16. watch is called with the
    predictions of each batch.
    """
    total = torch.zeros(len(SUM_NAMES), dtype=torch.float64, device=device)
    for batch in batches:
        on_device = to_device(batch, device)
        planes_BCHW = expand_planes(on_device.packed_BN, network.spec)
        with autocast(device, precision):
            output = network(planes_BCHW)
        total += loss_terms(LossConfig(), output, on_device).sums
        if watch is not None:
            watch(Predictions.of(output, on_device, batch))
    return total.cpu()


def metrics_of(sums: torch.Tensor) -> PositionMetrics:
    """Means from the sums of sum_over_positions, over at least one position."""
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
