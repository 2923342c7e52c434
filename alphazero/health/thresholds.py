"""The thresholds of health checks: health.toml beside this file, and what a user's own file changes."""

from __future__ import annotations

import math
import re
import sys
import typing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from alphazero.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = Path(__file__).with_name("health.toml")


@dataclass(frozen=True)
class GpuThresholds:
    """[gpu] of health.toml, where each has its source; *_warn and *_fail are reached at or over."""

    ecc_uncorrected_volatile_fail: int
    ecc_uncorrected_aggregate_warn: int
    wants_ecc: bool
    retired_pages_fail: int
    temperature_c_warn: int
    harmless_clock_reasons: tuple[str, ...]
    others_memory_mib_warn: int
    inactive_nvlinks_fail: int
    nvlink_errors_warn: int
    pcie_replays_warn: int
    pcie_replays_per_minute_warn: float
    xids_fail: tuple[int, ...]


@dataclass(frozen=True)
class HostThresholds:
    """[host] of health.toml; of what is free or allowed, less than the threshold reaches it."""

    memory_available_mib_warn: int
    memory_available_mib_fail: int
    swap_used_percent_warn: float
    disk_free_mib_warn: int
    disk_free_mib_fail: int
    inodes_free_warn: int
    inodes_free_fail: int
    shm_free_mib_warn: int
    shm_free_mib_fail: int
    open_files_warn: int
    open_files_fail: int
    load_per_core_warn: float
    cores_per_gpu_warn: int
    wants_synchronised_clock: bool


@dataclass(frozen=True)
class CollectiveThresholds:
    """[collective] of health.toml."""

    straggler_ratio_warn: float
    straggler_floor_ms: float
    stage_timeout_s: float


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
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; expected a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, entries in table.items():
        if name not in SECTIONS or not isinstance(entries, dict):
            wanted = ", ".join(f"[{section}]" for section in SECTIONS)
            raise ConfigError(f"{_place(path, text, '', name)}: {name!r}: no such section; expected {wanted}")
        kinds = typing.get_type_hints(SECTIONS[name])
        for key, value in entries.items():
            place = _place(path, text, name, key)
            if key not in kinds:
                wanted = ", ".join(entry.name for entry in fields(SECTIONS[name]))
                raise ConfigError(f"{place}: {key!r}: no such threshold; expected one of {wanted}")
            values[name][key] = _checked(f"{place}: {key}", value, kinds[key])
    return values


def _place(path: Path, text: str, section: str, key: str) -> str:
    """file:line of a key; tomllib keeps no lines, so the first line within its section that begins so."""
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\s*\"?([^\]\".]+)", line)
        current = header[1].strip() if header else current
        is_key = re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", line)
        if (header and current == key and not section) or (is_key and current == section):
            return f"{path}:{number}"
    return str(path)


_WANTED = {bool: "true or false", int: "a whole number from 0", float: "a number from 0"}


def _checked(place: str, value: object, kind: Any) -> Any:  # noqa: ANN401 - a field of any type
    """`value` as `kind`, never negative."""
    if typing.get_origin(kind) is tuple:
        item_kind = typing.get_args(kind)[0]
        if not isinstance(value, list) or any(type(item) is not item_kind for item in value):
            wanted = "texts" if item_kind is str else "whole numbers"
            raise ConfigError(f"{place}: {value!r}: expected a list of {wanted}")
        return tuple(value)
    if kind is bool:
        if isinstance(value, bool):
            return value
    elif type(value) in (int, kind) and isinstance(value, (int, float)) and 0 <= value < math.inf:
        return kind(value)
    raise ConfigError(f"{place}: {value!r}: expected {_WANTED[kind]}")
