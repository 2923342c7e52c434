"""The preflight as the head sees it: its arguments, and what its report or its end means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alphazero.base.errors import ERRORS_BY_KIND
from alphazero.base.text import counted
from alphazero.launch.agent.protocol import Output
from alphazero.launch.head.attempt import StartOutcome
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.machine.findings import Finding, Severity, finding_from_json
from alphazero.run.rank_watch import Limits

LOG_DIRECTORY = "preflight"  # of the run directory: its logs are not the job's
# Stages of the preflight have separate limits, which name who is behind; this one is for all of it.
LIMITS = Limits(start_s=240.0)
FAILED = 2


@dataclass(frozen=True)
class PreflightVerdict:
    """What the preflight came to.

    lines: to print. status: 0 to continue (warnings are lines), else the exit status. culprits: hosts at
    fault, by the head's names, empty where none can be named.
    """

    lines: tuple[str, ...]
    status: int = 0
    culprits: frozenset[str] = frozenset()


def program(plan: LaunchPlan, files: Sequence[str]) -> tuple[str, ...]:
    """The preflight and its arguments: the ranks of each host in order, and the files to compare."""
    compared = ("--config-file", *files) if files else ()
    places = (f"{host.remote.name}={host.num_ranks}" for host in plan.hosts)
    return (
        *(*programs.words_of(programs.PREFLIGHT), "--device", plan.device, "--json"),
        *(*compared, "--hosts", *places),
    )


def find_report(outputs: Iterable[Output]) -> Mapping[str, Any] | None:
    """The preflight's report in what rank 0 has printed, None where it gave none."""
    text = "".join(output.text for output in outputs if output.rank == 0)
    for found in re.finditer(r"^\{$", text, re.MULTILINE):
        try:
            report = json.JSONDecoder().raw_decode(text, found.start())[0]
        except ValueError:
            continue
        return report if report.get("format") == "alphazero-preflight" else None
    return None


def judge(report: Mapping[str, Any] | None, outcome: StartOutcome, plan: LaunchPlan) -> PreflightVerdict:
    """The verdict on a preflight of this plan."""
    host_of = [host.remote.name for host in plan.hosts for _ in range(host.num_ranks or 0)]
    if report is None or outcome.lost:
        return _without_report(outcome, host_of)
    findings = [finding_from_json(table) for table in report["findings"]]
    faults = [finding for finding in findings if finding.severity == Severity.FAIL]
    warnings = [finding for finding in findings if finding.severity == Severity.WARN]
    lines = [f"error: preflight: {finding.line()}" for finding in faults]
    lines += [f"warning: preflight: {finding.line()}" for finding in warnings]
    if faults:
        culprits = frozenset(filter(None, (_host(finding, host_of) for finding in faults)))
        return PreflightVerdict(tuple(lines), FAILED, culprits)
    return PreflightVerdict((summary(report, plan.num_nodes), *lines))


def summary(report: Mapping[str, Any], num_hosts: int) -> str:
    """One line: who was there, and how fast they are together."""
    line = f"preflight: {len(report['ranks'])} ranks on {counted(num_hosts, 'host')}, {report['backend']}"
    figures = report["all_reduce"]
    if figures is None:
        return line
    return (
        f"{line}: all-reduce {figures['latency_us']:.0f} us, {figures['algorithm_gb_s']:.2f} GB/s for "
        f"{figures['bytes'] >> 20} MiB"
    )


def _host(finding: Finding, host_of: Sequence[str]) -> str:
    """The host of a finding on a rank, "" where it is on none."""
    rank = finding.device.removeprefix("rank")
    return host_of[int(rank)] if rank.isdecimal() and int(rank) < len(host_of) else ""


def _without_report(outcome: StartOutcome, host_of: Sequence[str]) -> PreflightVerdict:
    """Ranks that died, never came or stood still; hosts that were lost."""
    failure = outcome.failure
    if failure is None:
        return PreflightVerdict(("error: preflight: ended without a report",), FAILED)
    status = failure.status or FAILED
    if failure.ranks and not outcome.lost:
        # The rank that reports it is not the one at fault.
        culprits = frozenset(host_of[rank] for rank in failure.ranks if rank < len(host_of))
        return PreflightVerdict((f"error: preflight: {failure.cause}",), status, culprits)
    # A rank that reports what it found, such as a closed network, blames no host.
    found = failure.rank is not None and failure.kind in ERRORS_BY_KIND
    blamed: set[str] = set() if found else {failure.host}
    culprits = frozenset(outcome.lost or blamed)
    return PreflightVerdict((f"error: preflight: {failure.line}",), status, culprits)
