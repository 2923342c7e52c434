"""One network behind evaluators of several batch sizes: few positions do not pay for much padding."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import torch

from alphazero.games.spec import GameSpec
from alphazero.network.inference.evaluator import NetworkEvaluator, Pending
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.

STEP = 4  # from one size to the next


def batch_sizes(largest: int) -> list[int]:
    """1, 4, 16, ... and the largest, ascending."""
    sizes = [1]
    while sizes[-1] * STEP < largest:
        sizes.append(sizes[-1] * STEP)
    return sizes if largest == 1 else [*sizes, largest]


class EvaluatorLadder:
    """Evaluates up to batch_size positions at a time, by the smallest evaluator that has room for them.

    Batches of one size are computed alike whoever asks; another size may round otherwise, as
    NetworkEvaluator says.
    """

    def __init__(
        self, network: AlphaZeroNet, spec: GameSpec, device: torch.device, precision: str, batch_size: int
    ) -> None:
        self.batch_size = batch_size
        self._evaluators = [
            NetworkEvaluator(network, spec, device, precision, size) for size in batch_sizes(batch_size)
        ]

    @property
    def description(self) -> str:
        """How this machine computes it: one line for people."""
        return self._evaluators[-1].description

    def twin(self) -> EvaluatorLadder:
        """Another of the same weights, held once, whose batches another thread can compute."""
        twin = copy.copy(self)
        twin._evaluators = [one.twin() for one in self._evaluators]
        return twin

    def submit(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Pending:
        """As NetworkEvaluator.submit, which refuses more than batch_size."""
        fits = (one for one in self._evaluators if len(packed) <= one.batch_size)
        return next(fits, self._evaluators[-1]).submit(packed, legal_index, legal_offset)
