"""Batches computed side by side on the CPU: each on threads of its own, which wait for nobody.

Threads that share one batch wait for each other after every layer. On a machine that does other work as well,
each of these waits lasts as long as the slowest thread is kept from running; batches side by side have none.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import torch

from alphazero.network.inference.evaluator import Evaluation
from alphazero.network.inference.ladder import EvaluatorLadder
from alphazero.network.model.resnet import AlphaZeroNet

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
