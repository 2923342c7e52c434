"""What the ranks of a preflight report and measure, judged: versions, stragglers; as text and JSON."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.base.text import table
from alphazero.machine.findings import CollectiveThresholds, Finding, Severity, exit_status, worst
from alphazero.machine.machine import processors_text

FORMAT = "alphazero-preflight"
VERSION = 1


@dataclass(frozen=True)
class RankRecord:
    """What one rank reports of itself, before any collective. versions: (name, version) pairs.

    files: (name, sha256 or "missing") of the configuration files this rank sees.
    """

    rank: int
    local_rank: int
    host: str
    device: str
    versions: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RankTimes:
    """Medians on one rank, ms. link_ms: best exchange with a partner, None without one.

    compute_ms: the device's work alone; arrival_ms: that and the host's, from barrier to barrier.
    segments, retransmitted: TCP segments that the host sent meanwhile, and those it had to send again.
    """

    compute_ms: float
    arrival_ms: float
    latency_ms: float
    bandwidth_ms: float
    link_ms: float | None
    segments: int = 0
    retransmitted: int = 0


# Of the large all-reduce, by the type of the device.
BANDWIDTH_BYTES = {"cuda": 64 << 20, "cpu": 4 << 20}
# Fewer segments than these say nothing: one lost at the start of a connection is no lossy network.
LEAST_SEGMENTS = 200
# Why a rank is slow, by the figure of RankTimes that shows it.
CAUSES = {
    "compute_ms": "its device is slow: busy, hot, throttled (alphazero health)",
    "arrival_ms": "its host is slow: cores in use by others, or swapping",
    "link_ms": "its links to all others are slow: check its network or NVLink",
}
# Ranks of different versions of these may compute on; all others must agree.
TOLERATED = ("python", "local changes")


@dataclass(frozen=True)
class PreflightReport:
    """The whole job. times: by rank, empty where disagreement kept the ranks from measuring."""

    backend: str
    bandwidth_bytes: int
    records: tuple[RankRecord, ...]
    times: tuple[RankTimes, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_status(self) -> int:
        """0 healthy, 1 with warnings, 2 with failures."""
        return exit_status(self.findings)


def judge_records(records: Sequence[RankRecord]) -> list[Finding]:
    """One finding for each rank and each thing in which it differs from most ranks; one if all agree."""
    findings: list[Finding] = []
    names = dict.fromkeys(name for record in records for name, _ in (*record.versions, *record.files))
    for name in names:
        values = [dict((*record.versions, *record.files)).get(name, "missing") for record in records]
        usual = Counter(values).most_common(1)[0][0]  # of equals, that of the lowest rank
        severity = Severity.WARN if name in TOLERATED else Severity.FAIL
        for record, value in zip(records, values, strict=True):
            if value != usual:
                pairs = zip(records, values, strict=True)
                most = frozenset(other.rank for other, its in pairs if its == usual)
                ranks = f"rank{'s' if len(most) > 1 else ''} {processors_text(most).replace(',', ', ')}"
                advice = f"most, {ranks}, have {usual}: install or copy the same on all hosts"
                findings.append(_of(record, severity, name, value, usual, advice))
    if not findings:
        value = f"{len(records)} ranks agree"
        findings.append(
            Finding(Severity.OK, records[0].host, "", "", "versions and configuration", value, None, "")
        )
    return findings


def judge_times(
    records: Sequence[RankRecord], times: Sequence[RankTimes], thresholds: CollectiveThresholds
) -> list[Finding]:
    """Stragglers by name: ranks far over the median in computing, in arriving at barriers, in their links."""
    ratio, floor_ms = thresholds.straggler_ratio_warn, thresholds.straggler_floor_ms
    findings: list[Finding] = []
    slow: set[int] = set()
    for name, advice in CAUSES.items():
        values: dict[int, float] = {
            record.rank: value
            for record, own in zip(records, times, strict=True)
            if (value := getattr(own, name)) is not None
        }
        # The lower median, so that the faster of two ranks is the measure.
        usual = statistics.median_low(values.values()) if values else 0.0
        for record in records:
            value = values.get(record.rank, 0.0)
            if value <= ratio * usual or value - usual <= floor_ms:
                continue
            if name != "link_ms" and record.rank in slow:
                continue  # who computes slowly arrives late: one finding
            slow.add(record.rank)
            text = f"straggler, {value / usual:.1f} times the median of {usual:.2f} ms: {advice}"
            findings.append(_of(record, Severity.WARN, name, round(value, 3), round(ratio * usual, 3), text))
    if not findings:
        findings.append(Finding(Severity.OK, records[0].host, "", "", "stragglers", "none", ratio, ""))
    return findings


def judge_network(
    records: Sequence[RankRecord],
    times: Sequence[RankTimes],
    bandwidth_bytes: int,
    thresholds: CollectiveThresholds,
) -> list[Finding]:
    """Warnings of a network between hosts that is slow for all, or on which a host loses segments."""
    if len({record.host for record in records}) < 2:
        return []
    findings: list[Finding] = []

    def warn(device: str, host: str, name: str, value: float, threshold: float, advice: str) -> None:
        findings.append(Finding(Severity.WARN, host, device, "", name, value, threshold, advice))

    latency_ms = statistics.median(own.latency_ms for own in times)
    if latency_ms > thresholds.latency_warn_ms:
        advice = "the network between the hosts is slow to answer: expected a local one (see --interface)"
        limit = thresholds.latency_warn_ms
        warn("", records[0].host, "latency_ms", round(latency_ms, 3), limit, advice)
    speed = bandwidth_bytes / (statistics.median(own.bandwidth_ms for own in times) / 1000) / 1e9
    if speed < thresholds.bandwidth_warn_gb_s:
        advice = "the network between the hosts is slow: is this the right interface (--interface)?"
        limit = thresholds.bandwidth_warn_gb_s
        warn("", records[0].host, "bandwidth_gb_s", float(f"{speed:.3g}"), limit, advice)
    for record, own in zip(records, times, strict=True):
        # All ranks of a host see the same counters.
        if record.local_rank != 0 or own.segments < LEAST_SEGMENTS:
            continue
        share = own.retransmitted / own.segments
        if share > thresholds.retransmitted_warn:
            advice = "its network loses packets: check cable, switch port and MTU"
            limit = thresholds.retransmitted_warn
            warn(f"rank{record.rank}", record.host, "retransmitted", round(share, 4), limit, advice)
    return findings


def _of(
    record: RankRecord,
    severity: Severity,
    name: str,
    value: float | str,
    threshold: float | str,
    advice: str,
) -> Finding:
    return Finding(severity, record.host, f"rank{record.rank}", "", name, value, threshold, advice)


def all_reduce_figures(report: PreflightReport) -> dict[str, float] | None:
    """Medians over ranks; bandwidths in GB/s, bus_gb_s as nccl-tests defines it (2 (n - 1) / n)."""
    if not report.times or len(report.times) == 1:
        return None
    count = len(report.times)
    seconds = statistics.median(own.bandwidth_ms for own in report.times) / 1000
    speed = report.bandwidth_bytes / seconds / 1e9
    return {
        "latency_us": 1000 * statistics.median(own.latency_ms for own in report.times),
        "bytes": report.bandwidth_bytes,
        "algorithm_gb_s": speed,
        "bus_gb_s": speed * 2 * (count - 1) / count,
    }


def report_table(report: PreflightReport) -> dict[str, object]:
    """The schema of docs/health.md."""
    ranks = [
        {
            **dataclasses.asdict(record),
            "versions": dict(record.versions),
            "files": dict(record.files),
            "times": dataclasses.asdict(report.times[number]) if report.times else None,
        }
        for number, record in enumerate(report.records)
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "backend": report.backend,
        "severity": worst(report.findings).word,
        "exit_status": report.exit_status,
        "ranks": ranks,
        "all_reduce": all_reduce_figures(report),
        "findings": [finding.to_json() for finding in report.findings],
    }


def report_text(report: PreflightReport) -> str:
    """The lines to print: one a rank, the all-reduce, what is wrong."""
    head = ("rank", "host", "device", "compute ms", "arrival ms", "link ms")
    rows = [head]
    for number, record in enumerate(report.records):
        times: tuple[str, str, str] = ("-", "-", "-")
        if report.times:
            own = report.times[number]
            link = "-" if own.link_ms is None else f"{own.link_ms:.2f}"
            times = (f"{own.compute_ms:.2f}", f"{own.arrival_ms:.2f}", link)
        rows.append((str(record.rank), record.host, record.device, *times))
    lines = table(rows)
    figures = all_reduce_figures(report)
    if figures is not None:
        lines.append(
            f"all-reduce ({report.backend}): {figures['latency_us']:.0f} us for 8 bytes; "
            f"{figures['algorithm_gb_s']:.2f} GB/s for {report.bandwidth_bytes >> 20} MiB "
            f"(bus {figures['bus_gb_s']:.2f} GB/s)"
        )
    lines += [finding.line() for finding in report.findings if finding.severity >= Severity.WARN]
    lines.append(f"preflight: {worst(report.findings).word}")
    return "\n".join(lines)
