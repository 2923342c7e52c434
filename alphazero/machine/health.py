"""The health of this host as a whole: readings and findings, as a table and as JSON (docs/health.md)."""

from __future__ import annotations

import dataclasses
import os
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from alphazero.base.text import counted, table
from alphazero.machine.findings import Finding, Severity, Thresholds, exit_status, shown, worst
from alphazero.machine.judge import judge_gpus, judge_host, judge_nvml
from alphazero.machine.memory import HostReading, read_host
from alphazero.machine.nvml import (
    Driver,
    GpuReading,
    NvmlUnusable,
    expects_gpus,
    open_nvml,
)

FORMAT = "alphazero-health"
VERSION = 1
GIB = 1 << 30


@dataclass(frozen=True)
class HealthReport:
    """One host at one time (seconds since 1970).

    hidden: devices CUDA_VISIBLE_DEVICES leaves out, read and not judged. gpus_asked: whether GPUs were looked
    for at all.
    """

    host: str
    time: float
    driver: Driver | None
    gpus: tuple[GpuReading, ...]
    hidden: tuple[GpuReading, ...]
    machine: HostReading
    findings: tuple[Finding, ...]
    gpus_asked: bool = True

    def exit_status(self, *, strict: bool = False) -> int:
        """2 with failures, else 0; with `strict` 1 where there are warnings."""
        return exit_status(self.findings, strict=strict)

    def faults(self) -> list[Finding]:
        """Warnings and failures, the worst first."""
        found = [finding for finding in self.findings if finding.severity >= Severity.WARN]
        return sorted(found, key=lambda finding: -finding.severity)


def check_this_host(thresholds: Thresholds, directory: Path, device: str) -> HealthReport:
    """Look at this host and judge it; devices that CUDA_VISIBLE_DEVICES leaves out are read, but not judged.

    directory: where the run will be written. device: auto, cuda (a GPU must be there) or cpu (GPUs are not
    asked).
    """
    host = socket.gethostname()
    driver: Driver | None = None
    gpus: tuple[GpuReading, ...] = ()
    findings: list[Finding] = []
    if device != "cpu":
        present = expects_gpus(device)
        try:
            with open_nvml() as nvml:
                driver, gpus = nvml.driver(), nvml.gpus()
        except NvmlUnusable as error:
            findings.append(judge_nvml(error, host, present))
        else:
            findings.append(_count(host, len(gpus), present))
    shown_gpus = tuple(filter(is_visible, gpus))
    findings += judge_gpus(shown_gpus, thresholds.gpu, host, family_of_this_process())
    machine = read_host(directory)
    findings += judge_host(machine, thresholds.host, host, len(shown_gpus))
    hidden = tuple(gpu for gpu in gpus if gpu not in shown_gpus)
    asked = device != "cpu"
    return HealthReport(host, time.time(), driver, shown_gpus, hidden, machine, tuple(findings), asked)


def _count(host: str, count: int, present: bool) -> Finding:
    if count or not present:
        return Finding(Severity.OK, host, "", "", "nvml", f"{count} GPUs", None, "")
    advice = "the driver lists no device: see dmesg | grep -i nvidia, then reboot the host"
    return Finding(Severity.FAIL, host, "", "", "nvml", "0 GPUs", "1 GPU", advice)


def is_visible(gpu: GpuReading) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lets this process use `gpu`, or a MIG device of it.

    MIG UUIDs do not name their GPU, so that they leave every device in.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return True
    entries = [entry.strip() for entry in visible.split(",") if entry.strip()]
    return any(
        entry == str(gpu.index)
        or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
        or (entry.startswith("MIG-GPU-") and bool(gpu.uuid) and entry[4:].startswith(gpu.uuid))
        or (entry.startswith("MIG-") and not entry.startswith("MIG-GPU-"))
        for entry in entries
    )


def family_of_this_process(*, with_siblings: bool = False) -> frozenset[int]:
    """This process, those that started it and those it started; with siblings all that its parent started."""
    own = psutil.Process()
    try:
        above = own.parents()
        oldest = above[0] if with_siblings and above else own
        return frozenset(process.pid for process in (own, *above, *oldest.children(recursive=True)))
    except psutil.Error:  # one of them ended just now
        return frozenset({own.pid, os.getppid()})


def to_json(report: HealthReport, *, strict: bool = False) -> dict[str, object]:
    """The schema of docs/health.md. strict: see HealthReport.exit_status."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "host": report.host,
        "time": report.time,
        "severity": worst(report.findings).word,
        "exit_status": report.exit_status(strict=strict),
        "kernel": platform.release(),
        "driver": None if report.driver is None else dataclasses.asdict(report.driver),
        "gpus": [_gpu_json(gpu, hidden=False) for gpu in report.gpus]
        + [_gpu_json(gpu, hidden=True) for gpu in report.hidden],
        "machine": dataclasses.asdict(report.machine),
        "findings": [finding.to_json() for finding in report.findings],
    }


def _gpu_json(gpu: GpuReading, hidden: bool) -> dict[str, object]:
    values = dataclasses.asdict(gpu)
    return {**values, "unread": dict(gpu.unread), "lost": gpu.lost or None, "hidden": hidden}


def to_table(report: HealthReport) -> str:
    """The lines to print: one per device, the host, then what is wrong or unknown."""
    lines = [f"{report.host}: {_verdict(report)}", ""]
    if report.driver is not None:
        lines.append(f"driver {report.driver.version or '?'}, CUDA up to {report.driver.cuda or '?'}")
    if report.gpus:
        head = ("device", "name", "util %", "memory GiB", "temp C", "power W", "links", "health")
        lines += [*table([head, *(_gpu_row(gpu, report.findings) for gpu in report.gpus)]), ""]
    elif report.driver is None and worst(one for one in report.findings if one.name == "nvml") is Severity.OK:
        reason = "No NVIDIA GPU was found" if report.gpus_asked else "GPUs were not looked at (--device cpu)"
        lines += [f"{reason}: only the host was checked.", ""]
    if report.hidden:
        names = ", ".join(gpu.device for gpu in report.hidden)
        lines += [f"left out by CUDA_VISIBLE_DEVICES, read but not judged: {names}", ""]
    lines += [_machine_line(report.machine), *_fault_lines(report)]
    return "\n".join(lines)


def _verdict(report: HealthReport) -> str:
    severities = [finding.severity for finding in report.findings]
    nouns = {Severity.FAIL: "failure", Severity.WARN: "warning", Severity.UNKNOWN: "unknown reading"}
    counts = ", ".join(
        counted(severities.count(kind), noun) for kind, noun in nouns.items() if kind in severities
    )
    healthy = "not fit for training" if Severity.FAIL in severities else "fit for training"
    return f"{healthy} ({counts})" if counts else healthy


def _gpu_row(gpu: GpuReading, findings: Sequence[Finding]) -> tuple[str, ...]:
    def text(value: float | None) -> str:
        return "?" if value is None else shown(round(value, 1))

    used, total = (
        None if size is None else size / GIB for size in (gpu.memory_used_bytes, gpu.memory_total_bytes)
    )
    links = "?"
    if gpu.nvlinks is not None:
        links = f"{sum(link.active for link in gpu.nvlinks)}/{len(gpu.nvlinks)}"
    severity = worst(finding for finding in findings if finding.device == gpu.device)
    return (
        gpu.device,
        (gpu.name or "?") + (" (MIG)" if gpu.mig_enabled else ""),
        text(gpu.utilisation_percent),
        f"{text(used)}/{text(total)}",
        text(gpu.temperature_c),
        f"{text(gpu.power_w)}/{text(gpu.power_limit_w)}",
        links,
        severity.word if severity >= Severity.WARN else Severity.OK.word,
    )


def _machine_line(machine: HostReading) -> str:
    shm = "?" if machine.shm_free is None else f"{machine.shm_free / GIB:.1f}"
    return (
        f"host: {counted(machine.cores, 'core')}, load {machine.load:.1f} in the last minute; memory "
        f"{machine.memory_available / GIB:.1f} of {machine.memory_total / GIB:.1f} GiB available; disk of "
        f"{machine.directory} {machine.disk_free / GIB:.1f} GiB free; /dev/shm {shm} GiB free; at most "
        f"{counted(machine.open_files, 'open file')} per process"
    )


def _against_limit(finding: Finding) -> str:
    value = "?" if finding.value is None else shown(finding.value)
    return value if finding.threshold is None else f"{value} (limit {shown(finding.threshold)})"


def _fault_lines(report: HealthReport) -> list[str]:
    """Faults, one per line; unknowns one line per device."""
    rows = [
        (
            finding.severity.word,
            finding.device or "host",
            finding.name,
            _against_limit(finding),
            finding.advice,
        )
        for finding in report.faults()
    ]
    unknown: dict[tuple[str, str], list[str]] = {}
    for finding in report.findings:
        if finding.severity is Severity.UNKNOWN:
            unknown.setdefault((finding.device or "host", finding.advice), []).append(finding.name)
    rows += [
        ("unknown", device, ", ".join(names), "?", advice) for (device, advice), names in unknown.items()
    ]
    return ["", *table(rows)] if rows else []
