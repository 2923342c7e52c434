"""Finds micro-batch sizes whose forward and backward pass fit into memory, before training begins."""

from __future__ import annotations

import copy
import dataclasses
import gc
import resource

import numpy as np
import psutil
import torch

from alphazero.config import Config
from alphazero.data.batch import Batch
from alphazero.games.spec import GameSpec
from alphazero.network.planes import to_device
from alphazero.network.resnet import AlphaZeroNet
from alphazero.runtime import Runtime
from alphazero.training.batch_plan import micro_batch_sizes
from alphazero.training.deepspeed_engine import TrainingModule

# Gradients, two moments, a moving average and ZeRO's flat copy, each as large as the fp32 weights.
COPIES_OF_WEIGHTS = 5
# What DeepSpeed and cuDNN take on top: buckets, workspaces, fragments.
MARGIN_BYTES = 1 << 30
CPU_SHARE = 0.8  # of the available memory
CPU_SIZES = (32, 128)  # two sizes whose difference shows what a position costs
RUSAGE_BYTES = 1024  # Linux counts ru_maxrss in KiB


def is_out_of_memory(error: BaseException) -> bool:
    """True for torch's own error and for those of cuDNN and cuBLAS that mean the same."""
    names = ("CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or any(name in str(error) for name in names)


def candidates(batch_size: int, world_size: int) -> list[int]:
    """Micro-batch sizes worth a try, ascending: divisors of the batch up to a rank's share."""
    return [size for size in micro_batch_sizes(batch_size) if size <= max(1, batch_size // world_size)]


class MemoryProbe:
    """Tries passes on this rank's device with a copy of the network; no other rank takes part."""

    def __init__(self, network: AlphaZeroNet, spec: GameSpec, config: Config, runtime: Runtime) -> None:
        self._network = network
        self._spec = spec
        self._config = config
        self._runtime = runtime

    def fits(self, micro_batch_size: int) -> bool:
        """True if a pass over that many positions fits beside all that training keeps."""
        if self._runtime.device.type == "cpu":
            return True  # the host has virtual memory: `largest` measures instead
        reserve_bytes = COPIES_OF_WEIGHTS * 4 * self._network.parameter_count() + MARGIN_BYTES
        try:
            reserve = torch.empty(reserve_bytes, dtype=torch.uint8, device=self._runtime.device)
            self._pass(micro_batch_size)
            del reserve
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        return True

    def largest(self, sizes: list[int]) -> int | None:
        """The largest of the ascending `sizes` that fits, by bisection; None if none does."""
        if self._runtime.device.type == "cpu":
            return max((size for size in sizes if size <= self._most_on_cpu()), default=None)
        low, high = 0, len(sizes)  # sizes[:low] fit, sizes[high:] do not
        while low < high:
            middle = (low + high) // 2
            if self.fits(sizes[middle]):
                low = middle + 1
            else:
                high = middle
        return sizes[low - 1] if low else None

    def _most_on_cpu(self) -> int:
        """Positions whose passes on all ranks of this host stay within a share of its free memory."""
        peaks = []
        for size in CPU_SIZES:
            self._pass(size)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RUSAGE_BYTES)
        cost = max(1.0, (peaks[1] - peaks[0]) / (CPU_SIZES[1] - CPU_SIZES[0]))
        share = CPU_SHARE * psutil.virtual_memory().available / self._runtime.local_world_size
        return max(1, int(share / cost))

    def _pass(self, micro_batch_size: int) -> None:
        """Forward, loss and backward over made-up positions; leaves network and generators untouched."""
        device, training = self._runtime.device, self._config.training
        network = copy.deepcopy(self._network).to(device).train()
        if training.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        plain = dataclasses.replace(training, compile=False)
        module = TrainingModule(network, self._spec, self._config.loss, plain)
        batch = to_device(made_up_batch(self._spec, micro_batch_size), device)
        module(batch).total.backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def made_up_batch(spec: GameSpec, size: int) -> Batch:
    """`size` empty boards with as many legal moves as a position of the game can have at most."""
    moves = spec.max_legal_moves
    return Batch(
        packed=np.zeros((size, spec.packed_bytes), np.uint8),
        legal_offset=np.arange(size + 1, dtype=np.int32) * moves,
        legal_index=np.tile(np.arange(moves, dtype=np.int32), size),
        policy=np.full(size * moves, 1 / moves, np.float32),
        wdl=np.full((size, 3), 1 / 3, np.float32),
        moves_left=np.ones(size, np.float32),
        sample_id=np.arange(size, dtype=np.int64),
    )
