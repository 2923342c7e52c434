"""One host as the doctor saw it: its environment, its disk, its presets; as JSON between hosts."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.doctor.disk_speed import DiskSpeed, measure_disk
from alphazero.doctor.estimates import energy_kwh, estimates, training_hours
from alphazero.doctor.figures import PresetFigures, figures_from_json
from alphazero.doctor.host_job import measure_presets
from alphazero.machine.environment import environment

MARK = "alphazero-doctor "  # before the JSON of a host: login scripts may print other things
MILLION = 1_000_000


@dataclass(frozen=True)
class Wishes:
    """What to examine on a host.

    runs: whose disk is measured. seconds: for each half of a preset; 0 measures nothing. ranks: 0 for as many
    as training would have.
    """

    presets: Sequence[str]
    runs: str
    device: str
    seconds: float
    ranks: int = 0

    def with_ranks(self, ranks: int) -> Wishes:
        """The same on so many ranks."""
        return dataclasses.replace(self, ranks=ranks)

    def to_json(self) -> dict[str, Any]:
        """As the keywords that make it."""
        return {**dataclasses.asdict(self), "presets": list(self.presets)}


@dataclass(frozen=True)
class ExaminedHost:
    """disk: None where it was not measured. presets: empty likewise. fault: why it said nothing, else ""."""

    host: str
    environment: Mapping[str, Any]
    disk: DiskSpeed | None = None
    disk_fault: str = ""
    presets: tuple[PresetFigures, ...] = ()
    fault: str = ""


def examine_this_host(wishes: Wishes) -> ExaminedHost:
    """Look, and measure what is wished."""
    told = environment()
    if not wishes.seconds:
        return ExaminedHost(platform.node(), told)
    disk, disk_fault = None, ""
    try:
        disk = measure_disk(Path(wishes.runs))
    except OSError as error:
        disk_fault = f"{wishes.runs}: cannot be written: {error.strerror}"
    measured = measure_presets(wishes.presets, wishes.device, wishes.seconds, wishes.ranks)
    return ExaminedHost(platform.node(), told, disk, disk_fault, tuple(measured))


def to_json(host: ExaminedHost) -> dict[str, Any]:
    """With what follows from the figures: hours and energy."""
    table = dataclasses.asdict(host)
    for one, figures in zip(table["presets"], host.presets, strict=True):
        hours = training_hours(figures, MILLION)
        one["hours_per_million"], one["kwh_per_million"] = hours, energy_kwh(figures, hours)
    return {**table, "estimates": [dataclasses.asdict(one) for one in estimates(list(host.presets))]}


def encode(host: ExaminedHost) -> str:
    """A host as its line."""
    return MARK + json.dumps(dataclasses.asdict(host))


def decode(output: str) -> ExaminedHost | None:
    """The host in its output; None where there is none of this version."""
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    try:
        table = json.loads(lines[-1][len(MARK) :])
        disk = DiskSpeed(**table["disk"]) if table["disk"] else None
        presets = tuple(map(figures_from_json, table["presets"]))
        return ExaminedHost(**{**table, "disk": disk, "presets": presets})
    except (IndexError, ValueError, TypeError, KeyError):
        return None
