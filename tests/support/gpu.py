"""Tests that need a GPU: their marks, where their jobs run, and the rehearsal of the same tests on the CPU.

With ALPHAZERO_REHEARSE_GPU=1 they run on the CPU, as far as they ask for nothing that CUDA alone has: so a
slip in a test shows before a GPU is there.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.jobs.jobs import run_job

REHEARSAL = os.environ.get("ALPHAZERO_REHEARSE_GPU", "0") not in ("", "0")
DEVICE = "cpu" if REHEARSAL else "cuda"
# CUDA_VISIBLE_DEVICES of a job: all there are, or none.
DEVICES = "" if REHEARSAL else None

CUDA_ALONE = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
HAS_DEVICE = pytest.mark.skipif(
    not (REHEARSAL or torch.cuda.is_available()), reason="no CUDA device here (nor ALPHAZERO_REHEARSE_GPU=1)"
)

Mark = Callable[[Callable[..., None]], Callable[..., None]]


def on_gpu(order: int = 5, seconds: int = 20) -> Mark:
    """Marks a test that can be rehearsed. order: the least first; seconds: what it may take."""
    return lambda test: HAS_DEVICE(pytest.mark.gpu(order=order, seconds=seconds)(test))


def on_cuda(order: int = 5, seconds: int = 20) -> Mark:
    """Marks a test of what only CUDA has."""
    return lambda test: CUDA_ALONE(pytest.mark.gpu(order=order, seconds=seconds)(test))


def own_core(rank: int = 0) -> Callable[[], None] | None:
    """In a rehearsal a core of its own for each rank: the trainer takes a thread for each core it may use."""
    if not REHEARSAL:
        return None
    cores = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, {cores[rank % len(cores)]})


def run_gpu_job(directory: Path, store: Path, *extra: str, script: Path | None = None) -> str:
    """`run_job` of one rank on the GPU, or on the CPU in a rehearsal."""
    return run_job(directory, store, 1, *extra, "--device", DEVICE, devices=DEVICES, script=script)
