"""Batched inference: packed positions in, logits of their legal moves and win, draw, loss out."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from alphazero.games.core_types import BatchEvaluation, Indices, Positions
from alphazero.network.inference.attention import OneDnnAttention
from alphazero.network.inference.forward import Forward, ModuleForward, fold_tensors
from alphazero.network.inference.int8 import Int8Forward
from alphazero.network.inference.kernels import kernels_for, make_cuda_forward
from alphazero.network.inference.onednn import OneDnnForward, why_not_onednn
from alphazero.network.inference.program import BatchBuffers, BatchProgram, CudaRunner, Runner, policy_places
from alphazero.network.model.precision import DTYPES, INT8, require_int8
from alphazero.network.model.resnet import AlphaZeroNet

# Shapes: B positions, N bytes of a packed position, K legal moves over all B positions.


class PendingBatch:
    """A batch on its way."""

    def __init__(self, buffers: BatchBuffers) -> None:
        self._buffers = buffers
        self._evaluation: BatchEvaluation | None = None

    def result(self) -> BatchEvaluation:
        """Wait for the device; arrays of the caller's own. Frees the batch's buffers for another submit."""
        if self._evaluation is None:
            buffers = self._buffers
            buffers.wait()
            self._evaluation = BatchEvaluation(
                buffers.logits_M[: buffers.num_moves].numpy().copy(),
                buffers.wdl_B3[: buffers.num_positions].numpy().copy(),
            )
            buffers.busy = False
        return self._evaluation


class NetworkEvaluator:
    """A network frozen for inference: BatchNorm folded, whole network in one precision, channels last.

    Every forward pass has `batch_size` positions, padded, on buffers made once. The network given is
    left as it is. `description` names how this machine computes it, `batches_ahead` is how many batches it
    pays to submit before the first one's result: one on the CPU, where submit computes.

    A position's evaluation is the same to the bit whatever else is in the batch, wherever it stands
    there and however many are padding; on the CPU also whatever the number of threads, see
    onednn.py (not so where `description` is "PyTorch operators on cpu"). Another batch_size,
    CPU or GPU model may round otherwise.
    """

    def __init__(
        self,
        network: AlphaZeroNet,
        device: torch.device,
        precision: str,
        batch_size: int,
        *,
        in_flight: int = 2,
    ) -> None:
        self.spec = network.spec
        self.places = policy_places(network.config, network.spec)
        self.device = device
        self.batch_size = batch_size
        self.dtype = torch.uint8 if precision == INT8 else DTYPES[precision]
        self._make_buffers(make_forward(network, device, precision, batch_size), in_flight)

    def _make_buffers(self, forward: Forward, in_flight: int) -> None:
        self.program = BatchProgram(forward, self.places, self.spec, self.batch_size, self.device, self.dtype)
        self.max_moves = self.program.max_moves
        on_cuda = self.device.type == "cuda"
        self.runner = CudaRunner(self.program, self.device) if on_cuda else Runner(self.program)
        self.description = self.runner.description
        self.buffers = [BatchBuffers(self.program, pinned=on_cuda) for _ in range(in_flight)]
        self.batches_ahead = in_flight if on_cuda else 1

    def twin(self) -> NetworkEvaluator:
        """Another evaluator of the same weights, held once, whose batches another thread can compute."""
        twin = copy.copy(self)
        twin._make_buffers(self.program.forward, len(self.buffers))
        return twin

    def __call__(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> BatchEvaluation:
        """Evaluate packed u8 [B, N] with legal_index i32 [K] and legal_offset i32 [B + 1], any B."""
        num_positions = len(packed)
        legal_logits = np.empty(len(legal_index), np.float32)
        wdl = np.empty((num_positions, 3), np.float32)
        for start in range(0, num_positions, self.batch_size):
            stop = min(start + self.batch_size, num_positions)
            first, last = int(legal_offset[start]), int(legal_offset[stop])
            legal_logits[first:last], wdl[start:stop] = self.submit(
                packed[start:stop], legal_index[first:last], legal_offset[start : stop + 1] - first
            ).result()
        return BatchEvaluation(legal_logits, wdl)

    def submit(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> PendingBatch:
        """Begin to evaluate packed u8 [B, N], B at most batch_size; legal moves as in a call.

        On CUDA this only enqueues; on the CPU it computes. The arrays may be reused at once. Raises
        ValueError for too many positions or moves, RuntimeError when `in_flight` batches wait for
        their result().
        """
        num_positions, num_moves = len(packed), len(legal_index)
        if num_positions > self.batch_size or num_moves > self.max_moves:
            raise ValueError(
                f"{num_positions} positions with {num_moves} moves: expected at most {self.batch_size} "
                f"with {self.max_moves}"
            )
        if len(legal_offset) != num_positions + 1 or legal_offset[0] != 0 or legal_offset[-1] != num_moves:
            raise ValueError(f"legal_offset: expected {num_positions + 1} numbers from 0 to {num_moves}")
        buffers = next((slot for slot in self.buffers if not slot.busy), None)
        if buffers is None:
            raise RuntimeError(f"{len(self.buffers)} batches in flight: take a result() first")
        buffers.fill(packed, legal_index, legal_offset)
        buffers.busy = True
        self.runner.enqueue(buffers)
        return PendingBatch(buffers)

    def load(self, named_tensors: Mapping[str, Tensor]) -> None:
        """Take new weights: a state dict of AlphaZeroNet with BatchNorm's statistics, on one device.

        In place: buffers and CUDA graphs stay. Batches submitted before have the old weights.
        """
        self.runner.load(fold_tensors(named_tensors))


def make_forward(network: AlphaZeroNet, device: torch.device, precision: str, batch_size: int) -> Forward:
    """The fastest forward pass that keeps the evaluator's promise on this device. Raises ConfigError."""
    if precision == INT8:
        require_int8(device, body=network.config.body, game=network.spec.name)
        return Int8Forward(network, batch_size)
    dtype = DTYPES[precision]
    if device.type == "cuda":
        return make_cuda_forward(network, device, dtype, kernels_for(network, device, dtype, batch_size))
    reason = why_not_onednn(dtype)
    if reason:
        return ModuleForward(network, device, dtype, remark=f" ({reason})")
    kind = OneDnnAttention if network.config.body == "attention" else OneDnnForward
    return kind(network, dtype, batch_size)
