"""One network behind evaluators of several batch sizes: few positions do not pay for much padding.

Batches computed side by side on the CPU: each on threads of its own, which wait for nobody.

Threads that share one batch wait for each other after every layer. On a machine that does other work as well,
each of these waits lasts as long as the slowest thread is kept from running; batches side by side have none.

The network that plays: an evaluator of the run's weights as they are shared, whole.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alphazero.games.random_positions import random_positions
from alphazero.games.registry import GameSpec
from alphazero.network.inference.evaluator import Evaluation, NetworkEvaluator, Pending
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

if TYPE_CHECKING:
    from alphazero.games.core_types import Leaves

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.

STEP = 4  # from one size to the next
SMALLEST_EVEN = 4


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
    def batches_ahead(self) -> int:
        """See NetworkEvaluator."""
        return self._evaluators[-1].batches_ahead

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


def evaluator_for_self_play(
    network: AlphaZeroNet, device: torch.device, precision: str, batch_size: int
) -> NetworkEvaluator | EvenLadder:
    """What many games at a time ask. On a GPU a batch that is not full is as fast as one that is."""
    kind = NetworkEvaluator if device.type == "cuda" else EvenLadder
    return kind(network, network.spec, device, precision, batch_size)


class EvenLadder(EvaluatorLadder):
    """A ladder for self-play on the CPU: a position is evaluated alike, to the bit, in all of its sizes.

    Sizes that differ from the largest on positions of random games are left out; new weights are tried anew.
    """

    def __init__(
        self, network: AlphaZeroNet, spec: GameSpec, device: torch.device, precision: str, batch_size: int
    ) -> None:
        self.batch_size = batch_size
        self._all = [
            NetworkEvaluator(network, spec, device, precision, size)
            for size in batch_sizes(batch_size)
            if size >= min(SMALLEST_EVEN, batch_size)
        ]
        self._evaluators = self._even(random_positions(spec.name))
        self._game = spec.name

    def load(self, named_tensors: Mapping[str, Tensor]) -> None:
        """See NetworkEvaluator.load; between batches."""
        for one in self._all:
            one.load(named_tensors)
        self._evaluators = self._even(random_positions(self._game))

    def _even(self, positions: Leaves) -> list[NetworkEvaluator]:
        """The evaluators that say of these positions what the largest says."""
        *smaller, largest = self._all
        expected = largest(*positions)
        return [*(one for one in smaller if _equal_bits(one(*positions), expected)), largest]


def _equal_bits(one: Evaluation, other: Evaluation) -> bool:
    return all(
        np.array_equal(first.view(np.uint32), second.view(np.uint32))
        for first, second in zip(one, other, strict=True)
    )


# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.


# The most positions of an evaluation for one tree, where nobody asks for another number.
CPU_BATCH_SIZE, CUDA_BATCH_SIZE = 32, 256
TREE_BATCHES = 2  # that a tree has on their way at a time


def evaluator_for_tree(
    network: AlphaZeroNet, device: torch.device, precision: str, *, batch_size: int = 0, num_threads: int = 0
) -> EvaluatorLadder | SideBySide:
    """What one TreeSearch asks. batch_size, num_threads (of the CPU): 0 leaves the choice."""
    on_cuda = device.type == "cuda"
    batch_size = batch_size or (CUDA_BATCH_SIZE if on_cuda else CPU_BATCH_SIZE)
    ladder = EvaluatorLadder(network, network.spec, device, precision, batch_size)
    return ladder if on_cuda else SideBySide(ladder, TREE_BATCHES, num_threads or torch.get_num_threads())


class SideBySide:
    """An evaluator of `num_batches` batches at a time, on num_threads threads of the CPU in all.

    A batch beyond these waits for its turn. Each batch is computed as the ladder computes it, to the bit.
    """

    def __init__(self, ladder: EvaluatorLadder, num_batches: int, num_threads: int) -> None:
        self.batch_size = ladder.batch_size
        self.description = ladder.description
        num_batches = max(1, min(num_batches, num_threads))
        self._free: SimpleQueue[EvaluatorLadder] = SimpleQueue()
        for each in (ladder, *(ladder.twin() for _ in range(num_batches - 1))):
            self._free.put(each)
        # OpenMP has a number of threads for each thread that calls it.
        self._threads = ThreadPoolExecutor(
            num_batches, "evaluations", torch.set_num_threads, (max(1, num_threads // num_batches),)
        )

    def submit(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Future[Evaluation]:
        """Begin to evaluate packed u8 [B, N], B at most batch_size; arrays must stay as they are meanwhile.

        What NetworkEvaluator.submit raises, the result raises.
        """
        return self._threads.submit(self._evaluate, packed, legal_index, legal_offset)

    def _evaluate(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Evaluation:
        ladder = self._free.get()
        try:
            return ladder.submit(packed, legal_index, legal_offset).result()
        finally:
            self._free.put(ladder)


def make_evaluator(
    tensors: Mapping[str, torch.Tensor],
    network: NetworkConfig,
    spec: GameSpec,
    device: torch.device,
    precision: str,
    batch_size: int,
) -> NetworkEvaluator | EvenLadder:
    """An evaluator of these weights; they are taken over, not copied, and no other ones are made first."""
    with torch.device("meta"):
        module = AlphaZeroNet(network, spec)
    module.adopt(tensors)
    return evaluator_for_self_play(module.eval(), device, precision, batch_size)
