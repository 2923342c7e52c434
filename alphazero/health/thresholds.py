"""The thresholds of health checks: health.toml beside this file, and what a user's own file changes."""

from __future__ import annotations

import typing
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from alphazero.settings import MOST, read_toml, refuse_section, setting, values_of

# health.toml has every default, with its meaning and source.
SHIPPED = Path(__file__).with_name("health.toml")


def _number() -> Any:  # noqa: ANN401 - a field of any type, as dataclasses.field
    return setting(MISSING, "", minimum=0, maximum=MOST)


def _other() -> Any:  # noqa: ANN401
    return setting(MISSING, "")


@dataclass(frozen=True)
class GpuThresholds:
    """[gpu] of health.toml, where each has its source; *_warn and *_fail are reached at or over."""

    ecc_uncorrected_volatile_fail: int = _number()
    ecc_uncorrected_aggregate_warn: int = _number()
    wants_ecc: bool = _other()
    retired_pages_fail: int = _number()
    temperature_c_warn: int = _number()
    harmless_clock_reasons: tuple[str, ...] = _other()
    others_memory_mib_warn: int = _number()
    inactive_nvlinks_fail: int = _number()
    nvlink_errors_warn: int = _number()
    pcie_replays_warn: int = _number()
    pcie_replays_per_minute_warn: float = _number()
    xids_fail: tuple[int, ...] = _number()


@dataclass(frozen=True)
class HostThresholds:
    """[host] of health.toml; of what is free or allowed, less than the threshold reaches it."""

    memory_available_mib_warn: int = _number()
    memory_available_mib_fail: int = _number()
    swap_used_percent_warn: float = _number()
    disk_free_mib_warn: int = _number()
    disk_free_mib_fail: int = _number()
    inodes_free_warn: int = _number()
    inodes_free_fail: int = _number()
    shm_free_mib_warn: int = _number()
    shm_free_mib_fail: int = _number()
    open_files_warn: int = _number()
    open_files_fail: int = _number()
    load_per_core_warn: float = _number()
    cores_per_gpu_warn: int = _number()
    wants_synchronised_clock: bool = _other()


@dataclass(frozen=True)
class CollectiveThresholds:
    """[collective] of health.toml."""

    straggler_ratio_warn: float = _number()
    straggler_floor_ms: float = _number()
    latency_warn_ms: float = _number()
    bandwidth_warn_gb_s: float = _number()
    retransmitted_warn: float = _number()
    stage_timeout_s: float = _number()


@dataclass(frozen=True)
class Thresholds:
    """All sections."""

    gpu: GpuThresholds
    host: HostThresholds
    collective: CollectiveThresholds


SECTIONS: dict[str, type] = typing.get_type_hints(Thresholds)


def load_thresholds(path: Path | None = None) -> Thresholds:
    """The shipped thresholds, those in the TOML file `path` put in their place.

    Raises ConfigError naming file, line and key, with the value got and the value expected.
    """
    values = _read(SHIPPED)
    if path is not None:
        for section, changed in _read(path).items():
            values[section] |= changed
    return Thresholds(**{name: section(**values[name]) for name, section in SECTIONS.items()})


def _read(path: Path) -> dict[str, dict[str, Any]]:
    file = read_toml(path)
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, entries in file.table.items():
        if name not in SECTIONS or not isinstance(entries, dict):
            refuse_section(file, name, SECTIONS)
        values[name] = values_of(SECTIONS[name], file, name, entries, noun="threshold")
    return values
