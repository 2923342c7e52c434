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

from alphazero.base.text import counted, table
from alphazero.machine.judge import (
    Finding,
    Judge,
    Severity,
    exit_status,
    judge_gpus,
    judge_host,
    judge_nvml,
    shown,
    worst,
)
from alphazero.machine.memory import HostReading, read_host
from alphazero.machine.nvml import GpuReading, NvmlUnusable, expects_gpus, open_nvml

FORMAT = "alphazero-health"
VERSION = 2
GIB = 1 << 30


@dataclass(frozen=True)
class HealthReport:
    """One host at one time (seconds since 1970). gpus: those that CUDA_VISIBLE_DEVICES lets a job use."""

    host: str
    time: float
    driver: str | None
    gpus: tuple[GpuReading, ...]
    machine: HostReading
    findings: tuple[Finding, ...]

    def faults(self) -> list[Finding]:
        """Warnings and failures, the worst first."""
        faults = [finding for finding in self.findings if finding.severity >= Severity.WARN]
        return sorted(faults, key=lambda finding: -finding.severity)


def check_this_host(directory: Path, device: str) -> HealthReport:
    """Look at this host and judge it, less the devices that CUDA_VISIBLE_DEVICES leaves out.

    directory: where the run will be written. device: auto, cuda (a GPU must be there) or cpu (GPUs are not
    asked).
    """
    host = socket.gethostname()
    driver: str | None = None
    gpus: tuple[GpuReading, ...] = ()
    present = expects_gpus(device)
    judge = Judge(host)
    try:
        if device == "cpu":
            judge.add(Severity.OK, "nvml", "not asked (--device cpu)")
        else:
            with open_nvml() as nvml:
                driver, gpus = nvml.driver(), nvml.gpus()
            limit = "1 GPU" if present and not gpus else None
            advice = "the driver lists no device: see dmesg | grep -i nvidia, then reboot the host"
            judge.add(Severity.FAIL if limit else Severity.OK, "nvml", f"{len(gpus)} GPUs", limit, advice)
    except NvmlUnusable as error:
        judge.findings.append(judge_nvml(error, host, present))
    findings = judge.findings
    visible = tuple(filter(is_visible, gpus))
    findings += judge_gpus(visible, host)
    machine = read_host(directory)
    findings += judge_host(machine, host, len(visible))
    return HealthReport(host, time.time(), driver, visible, machine, tuple(findings))


def is_visible(gpu: GpuReading) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lets this process use `gpu`, or a MIG device of it.

    MIG UUIDs do not name their GPU, so that they leave every device in.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible is None or any(
        entry == str(gpu.index)
        or entry.startswith("MIG-")
        or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
        for entry in map(str.strip, visible.split(","))
    )


def to_json(report: HealthReport, *, strict: bool = False) -> dict[str, object]:
    """The schema of docs/health.md. strict: see exit_status."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "host": report.host,
        "time": report.time,
        "severity": worst(report.findings).word,
        "exit_status": exit_status(report.findings, strict=strict),
        "kernel": platform.release(),
        "driver": report.driver,
        "gpus": [dataclasses.asdict(gpu) | {"lost": gpu.lost or None} for gpu in report.gpus],
        "machine": dataclasses.asdict(report.machine),
        "findings": [finding.to_json() for finding in report.findings],
    }


def to_table(report: HealthReport) -> str:
    """The lines to print: one per device, then what is wrong or unknown, then what is right of the host."""
    severities = [finding.severity for finding in report.findings]
    nouns = {Severity.FAIL: "failure", Severity.WARN: "warning", Severity.UNKNOWN: "unknown reading"}
    counts = [counted(severities.count(kind), noun) for kind, noun in nouns.items() if kind in severities]
    verdict = "not fit for training" if Severity.FAIL in severities else "fit for training"
    lines = [f"{report.host}: {verdict}" + (f" ({', '.join(counts)})" if counts else ""), ""]
    if report.driver is not None:
        lines.append(f"driver {report.driver}")
    if report.gpus:
        head = ("device", "name", "util %", "memory GiB", "temp C", "power W", "links", "health")
        lines += [*table([head, *(_gpu_row(gpu, report.findings) for gpu in report.gpus)]), ""]
    return "\n".join([*lines, *_finding_lines(report)])


def _gpu_row(gpu: GpuReading, findings: Sequence[Finding]) -> tuple[str, ...]:
    def text(value: float | None, unit: float = 1) -> str:
        return "?" if value is None else shown(round(value / unit, 1))

    severity = worst(finding for finding in findings if finding.device == gpu.device)
    return (
        gpu.device,
        (gpu.name or "?") + (" (MIG)" if gpu.mig_enabled else ""),
        text(gpu.utilisation_percent),
        f"{text(gpu.memory_used_bytes, GIB)}/{text(gpu.memory_total_bytes, GIB)}",
        text(gpu.temperature_c),
        f"{text(gpu.power_w)}/{text(gpu.power_limit_w)}",
        f"{sum(gpu.nvlinks.values())}/{len(gpu.nvlinks)}" if gpu.nvlinks else "?",
        severity.word if severity >= Severity.WARN else Severity.OK.word,
    )


def _finding_lines(report: HealthReport) -> list[str]:
    """One per fault; one per device with all that is unknown; one per pass of the host."""
    unknown: dict[str, list[str]] = {}
    for finding in report.findings:
        if finding.severity is Severity.UNKNOWN:
            unknown.setdefault(finding.device or "host", []).append(finding.name)
    good = [finding for finding in report.findings if finding.severity is Severity.OK and not finding.device]
    rows = [
        (finding.severity.word, finding.device or "host", finding.name, finding.value_text, finding.advice)
        for finding in (*report.faults(), *good)
    ]
    return table(
        [*rows, *(("unknown", device, ", ".join(names), "?", "") for device, names in unknown.items())]
    )
