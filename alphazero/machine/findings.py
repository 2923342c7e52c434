"""Findings of a check of a GPU, host or job, how bad they are, and the exit status that follows.

Thresholds are in health.toml beside this file; a user's own file changes some.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from alphazero.base.section import MOST, read_toml, refuse_section, setting, values_of


class Severity(IntEnum):
    """From good to bad; `unknown` is what could not be read, which is neither good nor a fault."""

    OK = 0
    UNKNOWN = 1
    WARN = 2
    FAIL = 3

    @property
    def word(self) -> str:
        """ok, unknown, warn or fail, as in JSON."""
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    """One check of one device, of the host itself (`device` and `uuid` empty) or of a rank ("rank3").

    name: what was checked, with its unit (temperature_c). value: what was read, None where unknown.
    threshold: the limit of the thresholds file that decided, None where there is none.
    advice: what to do, or why the value is unknown; one line, empty where all is well.
    """

    severity: Severity
    host: str
    device: str
    uuid: str
    name: str
    value: float | str | None
    threshold: float | str | None
    advice: str

    @property
    def matter(self) -> str:
        """How bad, where, and what was found."""
        device = f" {self.device}" if self.device else ""
        uuid = f" ({self.uuid})" if self.uuid else ""
        value = "" if self.value is None else f" = {shown(self.value)}"
        limit = "" if self.threshold is None else f" (limit {shown(self.threshold)})"
        return f"{self.severity.word}: {self.host}{device}{uuid}: {self.name}{value}{limit}"

    def line(self) -> str:
        """For a log: host, device and UUID, what was found and what to do."""
        return f"health {self.matter}: {self.advice}"

    def to_json(self) -> dict[str, object]:
        """The keys of docs/health.md."""
        named = {"severity": self.severity.word, "device": self.device or None, "uuid": self.uuid or None}
        return asdict(self) | named


def shown(value: float | str) -> str:
    """Numbers with at most three digits after the point, without trailing zeros."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity; OK where there is no finding."""
    return max((finding.severity for finding in findings), default=Severity.OK)


def exit_status(findings: Iterable[Finding], *, strict: bool = True) -> int:
    """0 healthy (unknowns included), 1 with warnings if they are to count (strict), 2 with failures."""
    return {Severity.WARN: int(strict), Severity.FAIL: 2}.get(worst(findings), 0)


# health.toml has every default, with its meaning and source.
SHIPPED = Path(__file__).with_name("health.toml")


def _threshold() -> Any:  # noqa: ANN401 - a field of any type, as dataclasses.field
    return setting(MISSING, "", minimum=0, maximum=MOST)


@dataclass(frozen=True)
class GpuThresholds:
    """[gpu] of health.toml, where each has its source; *_warn and *_fail are reached at or over."""

    ecc_uncorrected_volatile_fail: int = _threshold()
    retired_pages_fail: int = _threshold()
    temperature_c_warn: int = _threshold()
    harmless_clock_reasons: tuple[str, ...] = setting(MISSING, "")
    others_memory_mib_warn: int = _threshold()
    inactive_nvlinks_fail: int = _threshold()
    xids_fail: tuple[int, ...] = _threshold()


@dataclass(frozen=True)
class HostThresholds:
    """[host] of health.toml; of what is free or allowed, less than the threshold reaches it."""

    memory_available_mib_warn: int = _threshold()
    memory_available_mib_fail: int = _threshold()
    swap_used_percent_warn: float = _threshold()
    disk_free_mib_warn: int = _threshold()
    disk_free_mib_fail: int = _threshold()
    inodes_free_warn: int = _threshold()
    inodes_free_fail: int = _threshold()
    shm_free_mib_warn: int = _threshold()
    shm_free_mib_fail: int = _threshold()
    open_files_warn: int = _threshold()
    open_files_fail: int = _threshold()
    load_per_core_warn: float = _threshold()
    cores_per_gpu_warn: int = _threshold()
    wants_synchronised_clock: bool = setting(MISSING, "")


@dataclass(frozen=True)
class CollectiveThresholds:
    """[collective] of health.toml."""

    bandwidth_warn_gb_s: float = _threshold()
    stage_timeout_s: float = _threshold()


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
