"""Tests that need a GPU: their marks, their jobs, and the rehearsal of the same tests on the CPU.

With ALPHAZERO_REHEARSE_GPU=1 they run on the CPU, as far as they ask for nothing that CUDA alone has: so a
slip in a test shows before a GPU is there.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.support.jobs.zygote import TRAIN, Zygote

REHEARSAL = os.environ.get("ALPHAZERO_REHEARSE_GPU", "0") not in ("", "0")
DEVICE = "cpu" if REHEARSAL else "cuda"
LIMIT_S = 240  # of a job

CUDA_ALONE = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
HAS_DEVICE = pytest.mark.skipif(
    not (REHEARSAL or torch.cuda.is_available()), reason="no CUDA device here (nor ALPHAZERO_REHEARSE_GPU=1)"
)

PRECISIONS = (
    "bf16",
    pytest.param("fp16", marks=pytest.mark.skipif(REHEARSAL, reason="on a CPU fp16 takes minutes")),
    "fp32",
)

Mark = Callable[[Callable[..., None]], Callable[..., None]]


def on_gpu(order: int = 5, seconds: int = 20, alone: bool = False) -> Mark:
    """Marks a test that can be rehearsed.

    order: the least first. seconds: what it may take. alone: no other test runs meanwhile (gpu_budget.py).
    """
    return lambda test: HAS_DEVICE(pytest.mark.gpu(order=order, seconds=seconds, alone=alone)(test))


def on_cuda(order: int = 5, seconds: int = 20, alone: bool = False) -> Mark:
    """Marks a test of what only CUDA has."""
    return lambda test: CUDA_ALONE(pytest.mark.gpu(order=order, seconds=seconds, alone=alone)(test))


# What a job imports that an interpreter with torch may lack: DeepSpeed and what it needs.
OF_JOBS = ("deepspeed", "hjson", "pydantic", "einops", "cpuinfo")


def need(*packages: str) -> None:
    """Skip the test that runs where a package is missing, by its name."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


@dataclass(frozen=True)
class GpuJobs:
    """Starts jobs on the GPU, or on the CPU in a rehearsal."""

    zygote: Zygote

    def visible(self, device: str = DEVICE) -> dict[str, str]:
        """What hides the GPUs from a job on the CPU."""
        return {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}

    def run(
        self,
        directory: Path,
        store: Path,
        *extra: str,
        ranks: int = 1,
        script: Path = TRAIN,
        device: str = DEVICE,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """A tiny job to its end; what it printed."""
        return self.zygote.run_job(
            directory,
            store,
            ranks,
            *extra,
            "--device",
            device,
            script=script,
            timeout_s=LIMIT_S,
            variables={**self.visible(device), **(variables or {})},
        )
