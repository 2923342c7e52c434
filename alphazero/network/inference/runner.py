"""How a BatchProgram is run: at once on the CPU, without waiting on a CUDA stream as a captured graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alphazero.network.inference.batch_program import BatchProgram

# Shapes: as in batch_program.py.

WARM_UP_RUNS = 3  # before a capture, as torch.cuda.make_graphed_callables does
# In torch's own "global" mode a capture fails when any thread of the process allocates or copies, as the
# writer of checkpoints does.
CAPTURE_ERROR_MODE = "thread_local"


class BatchBuffers:
    """Host buffers of one batch in flight (pinned for CUDA), and the event that ends it."""

    def __init__(self, program: BatchProgram, pinned: bool) -> None:
        def like(tensor: Tensor) -> Tensor:
            return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)

        self.program = program
        self.packed_BN, self.index_M, self.offset_B1 = map(
            like, (program.packed_BN, program.index_M, program.offset_B1)
        )
        self.logits_M, self.wdl_B3 = like(program.logits_M), like(program.wdl_B3)
        self.event = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]
        self.busy = False
        self.num_positions = 0
        self.num_moves = 0

    def fill(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> None:
        """Take a batch: legal_offset begins with 0. The arrays are free afterwards."""
        self.num_positions, self.num_moves = len(packed), len(legal_index)
        self.packed_BN.numpy()[: self.num_positions] = packed
        self.index_M.numpy()[: self.num_moves] = legal_index
        offset_B1 = self.offset_B1.numpy()
        offset_B1[: self.num_positions + 1] = legal_offset
        offset_B1[self.num_positions + 1 :] = self.num_moves

    def send(self) -> None:
        """Copy what the batch fills to the device."""
        filled, moves = slice(self.num_positions), slice(self.num_moves)
        self.program.packed_BN[filled].copy_(self.packed_BN[filled], non_blocking=True)
        self.program.index_M[moves].copy_(self.index_M[moves], non_blocking=True)
        self.program.offset_B1.copy_(self.offset_B1, non_blocking=True)

    def fetch(self) -> None:
        """Copy the result of the batch back."""
        filled, moves = slice(self.num_positions), slice(self.num_moves)
        self.logits_M[moves].copy_(self.program.logits_M[moves], non_blocking=True)
        self.wdl_B3[filled].copy_(self.program.wdl_B3[filled], non_blocking=True)
        if self.event is not None:
            self.event.record()

    def wait(self) -> None:
        """Return when `fetch` is done."""
        if self.event is not None:
            self.event.synchronize()


@contextlib.contextmanager
def cudnn_by_rule() -> Iterator[None]:
    """cudnn chooses algorithms by rule: training lets it time them, and ranks would not choose alike.

    deterministic also keeps it from what it found by timing earlier: cudnn's cache knows the difference.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before


class Runner(Protocol):
    """Runs batches of a program one after the other."""

    @property
    def description(self) -> str:
        """How it runs, for people."""

    def enqueue(self, buffers: BatchBuffers) -> None:
        """Begin the evaluation of the batch in `buffers`; `buffers.wait()` ends it."""

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """New weights, for batches enqueued from now on."""


class CpuRunner:
    """Computes at once."""

    def __init__(self, program: BatchProgram) -> None:
        self.program = program
        self.description = program.forward.description

    @torch.inference_mode()
    def enqueue(self, buffers: BatchBuffers) -> None:
        """See Runner."""
        buffers.send()
        self.program.run(buffers.num_moves)
        buffers.fetch()

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See Runner."""
        self.program.forward.load(folded)


class CudaRunner:
    """Enqueues on a stream of its own; the program is a graph where it can be captured.

    All batches share the device's buffers: the stream keeps them apart.
    """

    def __init__(self, program: BatchProgram, device: torch.device) -> None:
        self.program = program
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # Buffers and weights were made on the stream of the caller.
        self.stream.wait_stream(torch.cuda.current_stream(device))
        self.graph: torch.cuda.CUDAGraph | None = None
        how = "as a CUDA graph"
        with self._on_stream(), cudnn_by_rule():
            for _ in range(WARM_UP_RUNS):
                program.run(program.max_moves)
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, stream=self.stream, capture_error_mode=CAPTURE_ERROR_MODE):
                    program.run(program.max_moves)
                self.graph = graph
            except RuntimeError as error:
                how = f"without CUDA graph: {str(error).strip().splitlines()[0]}"
        self.description = f"{program.forward.description}, {how}"

    def enqueue(self, buffers: BatchBuffers) -> None:
        """See Runner."""
        with self._on_stream(), torch.inference_mode():
            buffers.send()
            if self.graph is not None:
                self.graph.replay()
            else:
                with cudnn_by_rule():
                    self.program.run(buffers.num_moves)
            buffers.fetch()

    def load(self, folded: Mapping[str, Tensor]) -> None:
        """See Runner; in stream order, so batches enqueued before keep the old weights."""
        caller = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(caller)
        with self._on_stream():
            self.program.forward.load(folded)
        # The caller may change its tensors afterwards.
        caller.wait_stream(self.stream)

    def _on_stream(self) -> contextlib.AbstractContextManager[None]:
        context: contextlib.AbstractContextManager[None] = torch.cuda.stream(self.stream)
        return context
