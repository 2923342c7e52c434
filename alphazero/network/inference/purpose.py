"""The evaluator of a network for a purpose: self-play, the tree of one game, or trees of many positions.

Batches have fixed sizes: a NetworkEvaluator has one, and rounds alike for every position. Self-play and a
tree have an evaluator for each of several sizes, because padding a few positions to a large batch costs as
much as the large batch. A tree on the CPU has several batches evaluated at a time, each on separate threads:
threads that share a batch wait for each other after every layer, on a busy machine for the slowest.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from alphazero.games.core_types import BatchEvaluation, Indices, Positions
from alphazero.games.lines import random_positions
from alphazero.network.inference.evaluator import NetworkEvaluator, PendingBatch
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.

STEP = 4  # from one size to the next
SMALLEST_EVEN = 4
CPU_BATCH_SIZE, CUDA_BATCH_SIZE = 32, 256
CPU_FOREST_BATCH = 64  # of several trees
TREE_BATCHES = 2  # that a tree has evaluated at a time on the CPU
MOST_IN_FLIGHT = 4  # batches of a tree that wait for their results


def evaluator_for_self_play(
    network: AlphaZeroNet, device: torch.device, precision: str, batch_size: int
) -> NetworkEvaluator | EvenLadder:
    """For many games at a time. On a GPU a batch that is not full takes as long as a full one."""
    kind = NetworkEvaluator if device.type == "cuda" else EvenLadder
    return kind(network, device, precision, batch_size)


def evaluator_for_tree(
    network: AlphaZeroNet, device: torch.device, precision: str, *, batch_size: int = 0, num_threads: int = 0
) -> EvaluatorLadder | SideBySide:
    """For one TreeSearch. batch_size, num_threads (of the CPU): 0 chooses."""
    on_cuda = device.type == "cuda"
    batch_size = batch_size or largest_tree_batch(device)
    ladder = EvaluatorLadder(network, device, precision, batch_size, in_flight=MOST_IN_FLIGHT)
    return ladder if on_cuda else SideBySide(ladder, TREE_BATCHES, num_threads or torch.get_num_threads())


def evaluator_for_forest(
    network: AlphaZeroNet, device: torch.device, precision: str, batch_size: int
) -> NetworkEvaluator | SideBySide:
    """For trees of many positions, whose evaluations do not depend on what else is evaluated, to the bit."""
    if device.type == "cuda":
        return NetworkEvaluator(network, device, precision, batch_size)
    return SideBySide(
        EvenLadder(network, device, precision, batch_size), TREE_BATCHES, torch.get_num_threads()
    )


def largest_tree_batch(device: torch.device) -> int:
    """Positions of one evaluation for a tree, unless another number is given."""
    return CUDA_BATCH_SIZE if device.type == "cuda" else CPU_BATCH_SIZE


def batch_sizes(largest: int) -> list[int]:
    """1, 4, 16, ... and the largest, ascending."""
    sizes = [1]
    while sizes[-1] * STEP < largest:
        sizes.append(sizes[-1] * STEP)
    return sizes if largest == 1 else [*sizes, largest]


class EvaluatorLadder:
    """Evaluates up to batch_size positions at a time, in the smallest batch that has room for them.

    A batch of one size gives the same bits whoever asks; another size may round otherwise, see
    NetworkEvaluator.
    """

    def __init__(
        self,
        network: AlphaZeroNet,
        device: torch.device,
        precision: str,
        batch_size: int,
        smallest: int = 1,
        *,
        in_flight: int = 2,
    ) -> None:
        self.batch_size = batch_size
        self._evaluators = [
            NetworkEvaluator(network, device, precision, size, in_flight=in_flight)
            for size in batch_sizes(batch_size)
            if size >= min(smallest, batch_size)
        ]
        self.batches_ahead = self._evaluators[-1].batches_ahead
        self.description = self._evaluators[-1].description

    def twin(self) -> EvaluatorLadder:
        """Another with the same weights, stored once, for another thread."""
        twin = copy.copy(self)
        twin._evaluators = [evaluator.twin() for evaluator in self._evaluators]
        return twin

    def submit(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> PendingBatch:
        """As NetworkEvaluator.submit, which refuses more than batch_size."""
        fits = (evaluator for evaluator in self._evaluators if len(packed) <= evaluator.batch_size)
        return next(fits, self._evaluators[-1]).submit(packed, legal_index, legal_offset)


class EvenLadder(EvaluatorLadder):
    """A ladder for self-play on the CPU: a position's evaluation is the same to the bit in all of its sizes.

    Sizes that differ from the largest on positions of random games are left out, compared again for each
    set of weights.
    """

    def __init__(self, network: AlphaZeroNet, device: torch.device, precision: str, batch_size: int) -> None:
        super().__init__(network, device, precision, batch_size, SMALLEST_EVEN)
        self._all = self._evaluators
        self._game = network.spec.name
        self._leave_out_uneven()

    def load(self, named_tensors: Mapping[str, Tensor]) -> None:
        """See NetworkEvaluator.load; between batches."""
        for evaluator in self._all:
            evaluator.load(named_tensors)
        self._leave_out_uneven()

    def _leave_out_uneven(self) -> None:
        positions = random_positions(self._game)
        *smaller, largest = self._all
        expected = largest(*positions)
        even = [evaluator for evaluator in smaller if _equal_bits(evaluator(*positions), expected)]
        self._evaluators = [*even, largest]


def _equal_bits(one: BatchEvaluation, other: BatchEvaluation) -> bool:
    return all(
        np.array_equal(first.view(np.uint32), second.view(np.uint32))
        for first, second in zip(one, other, strict=True)
    )


class SideBySide:
    """An evaluator of `num_batches` batches at a time, on num_threads threads of the CPU in all.

    A batch beyond these waits for its turn. Each batch is computed as the ladder computes it, to the bit.
    """

    def __init__(self, ladder: EvaluatorLadder, num_batches: int, num_threads: int) -> None:
        self.batch_size = ladder.batch_size
        self.description = ladder.description
        num_batches = max(1, min(num_batches, num_threads))
        self.batches_ahead = num_batches + 1  # one waits, so that no thread does
        self._free: SimpleQueue[EvaluatorLadder] = SimpleQueue()
        for each in (ladder, *(ladder.twin() for _ in range(num_batches - 1))):
            self._free.put(each)
        # OpenMP has a number of threads for each thread that calls it.
        self._threads = ThreadPoolExecutor(
            num_batches, "evaluations", torch.set_num_threads, (max(1, num_threads // num_batches),)
        )

    def submit(
        self, packed: Positions, legal_index: Indices, legal_offset: Indices
    ) -> Future[BatchEvaluation]:
        """Begin to evaluate packed u8 [B, N], B at most batch_size; arrays must stay as they are meanwhile.

        What NetworkEvaluator.submit raises, the result raises.
        """
        return self._threads.submit(self._evaluate, packed, legal_index, legal_offset)

    def _evaluate(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> BatchEvaluation:
        ladder = self._free.get()
        try:
            return ladder.submit(packed, legal_index, legal_offset).result()
        finally:
            self._free.put(ladder)
