"""Where figures were measured: versions, the device, the driver, the commit."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

import torch

from alphazero.base.errors import ConfigError
from alphazero.machine.environment import commit_of, version_of
from alphazero.machine.nvml import NvmlUnusable, open_nvml
from alphazero.network.model.precision import choose_device
from benchmarks.network import cpu_name

PACKAGES = ("torch", "deepspeed", "numpy", "triton", "nvidia-ml-py")


def measure(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """What this process runs on."""
    device = choose_device(settings["device"], 0, os.environ)
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        **(cuda_figures(device) if device.type == "cuda" else {}),
        **versions(),
    }


def cuda_figures(device: torch.device) -> dict[str, object]:
    """Of a GPU. Raises ConfigError where its first kernel fails: nothing else could be measured either."""
    try:
        torch.ones(8, device=device).sum().item()
    except RuntimeError as error:
        raise ConfigError(f"{device}: its first kernel failed: {error}") from error
    found = torch.cuda.get_device_properties(device)
    return {
        "capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "memory_gib": round(found.total_memory / 2**30, 1),
        "gpus": torch.cuda.device_count(),
    }


def versions() -> dict[str, object]:
    """Of the software; what is not there is said to be so."""
    try:
        with open_nvml() as nvml:
            driver = nvml.driver().version
    except NvmlUnusable as error:
        driver = f"none ({error.reason})"
    nccl: tuple[int, ...] = torch.cuda.nccl.version() if torch.cuda.is_available() else ()
    return {
        "versions": {
            "python": platform.python_version(),
            **{package: version_of(package) for package in PACKAGES},
            "torch build": torch.__version__,
            "CUDA": torch.version.cuda or "none",
            "cuDNN": str(torch.backends.cudnn.version() or "none"),
            "NCCL": ".".join(map(str, nccl)) or "none",
            "driver": driver,
        },
        "commit": commit_of(),
        "cores": len(os.sched_getaffinity(0)),
    }
