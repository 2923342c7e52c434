"""Where figures were measured: versions, the device, the driver, the commit."""

from __future__ import annotations

import os
import platform

import torch

from alphazero.base.errors import ConfigError
from alphazero.machine.environment import commit_of, version_of
from alphazero.machine.nvml import NvmlUnusable, open_nvml
from alphazero.network.model.precision import choose_device
from benchmarks.network import cpu_name

PACKAGES = ("torch", "deepspeed", "numpy", "triton", "nvidia-ml-py")


def describe_machine(wanted: str) -> dict[str, object]:
    """What this process runs on. Raises ConfigError where CUDA's first kernel fails."""
    device = choose_device(wanted, 0, os.environ)
    found: dict[str, object] = {"device": device.type, "device_name": cpu_name()}
    if device.type == "cuda":
        try:
            torch.ones(8, device=device).sum().item()
        except RuntimeError as error:
            raise ConfigError(f"{device}: its first kernel failed: {error}") from error
        properties = torch.cuda.get_device_properties(device)
        found |= {"device_name": properties.name, "gpus": torch.cuda.device_count()}
        found |= {"memory_gib": round(properties.total_memory / 2**30, 1)}
    try:
        with open_nvml() as nvml:
            driver = nvml.driver().version
    except NvmlUnusable as error:
        driver = f"none ({error.reason})"
    versions = {
        "python": platform.python_version(),
        **{package: version_of(package) for package in PACKAGES},
        "CUDA": torch.version.cuda or "none",
        "cuDNN": str(torch.backends.cudnn.version() or "none"),
        "driver": driver,
    }
    return {**found, "versions": versions, "commit": commit_of(), "cores": len(os.sched_getaffinity(0))}
