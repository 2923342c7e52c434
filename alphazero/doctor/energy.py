"""Energy that this machine takes, where it tells: RAPL of the processors, NVML of the GPUs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from alphazero.machine.nvml import NvmlUnusable, open_nvml

POWER_CAPS = Path("/sys/class/powercap")
# Whole processors; their parts (intel-rapl:0:0 and so on) are in them.
PACKAGES = "intel-rapl:?"


@dataclass(frozen=True)
class Counters:
    """Joules so far of what tells it, by name, at one moment."""

    at_s: float
    joules: dict[str, float]


def read_counters(root: Path = POWER_CAPS) -> Counters:
    """What can be read: RAPL belongs to root on most machines."""
    joules = {}
    for package in sorted(root.glob(PACKAGES)):
        try:
            joules[f"processor {package.name[-1]}"] = int((package / "energy_uj").read_text()) / 1e6
        except (OSError, ValueError):
            continue
    return Counters(time.monotonic(), joules | _of_gpus())


def _of_gpus() -> dict[str, float]:
    """Since the driver was loaded; GPUs before Volta do not count it."""
    try:
        with open_nvml() as nvml:
            return nvml.energy_joules()
    except NvmlUnusable:
        return {}


def watts_between(before: Counters, after: Counters) -> dict[str, float]:
    """Mean power by name; a counter that began anew in between is left out."""
    seconds = after.at_s - before.at_s
    changes = {
        name: after.joules[name] - joules for name, joules in before.joules.items() if name in after.joules
    }
    return {name: change / seconds for name, change in changes.items() if change >= 0 and seconds > 0}
