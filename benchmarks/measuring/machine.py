"""Where figures were measured: versions, the device, the driver, the commit."""

from __future__ import annotations

import os
import platform

import torch

from alphazero.base.errors import ConfigError
from alphazero.machine.environment import commit_of, driver_version, version_of
from alphazero.network.model.precision import choose_device
from benchmarks.network import device_name

PACKAGES = ("torch", "deepspeed", "numpy", "triton", "nvidia-ml-py")


def describe_machine(wanted: str) -> dict[str, object]:
    """What this process runs on. Raises ConfigError where CUDA's first kernel fails."""
    device = choose_device(wanted, 0, os.environ)
    found: dict[str, object] = {"device": device.type, "device_name": device_name(device)}
    if device.type == "cuda":
        try:
            torch.ones(8, device=device).sum().item()
        except RuntimeError as error:
            raise ConfigError(f"{device}: its first kernel failed: {error}") from error
        memory_gib = round(torch.cuda.get_device_properties(device).total_memory / 2**30, 1)
        found |= {"gpus": torch.cuda.device_count(), "memory_gib": memory_gib}
    versions = {
        "python": platform.python_version(),
        **{package: version_of(package) for package in PACKAGES},
        "CUDA": torch.version.cuda or "none",
        "cuDNN": str(torch.backends.cudnn.version() or "none"),
        "driver": driver_version(),
    }
    return {**found, "versions": versions, "commit": commit_of(), "cores": len(os.sched_getaffinity(0))}
