"""The verdict on a preflight: what the head tells that program, and what its report or its end means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alphazero.base.errors import ERRORS_BY_KIND
from alphazero.cluster.agent.protocol import Output
from alphazero.cluster.launch.attempt import Outcome
from alphazero.cluster.plan import commands as programs
from alphazero.cluster.plan.launch_plan import Limits
from alphazero.machine.findings import Finding, Severity, finding_from_json

PROGRAM = ("--module", programs.PREFLIGHT)
LOG_DIRECTORY = "preflight"  # of the run directory: its logs are not the job's
# Stages of the preflight have limits of their own, which name who is behind; this one is for all of it.
LIMITS = Limits(start_s=240.0)
FAILED = 2


@dataclass(frozen=True)
class Verdict:
    """What the preflight came to.

    lines: for people. status: 0 to go on (warnings are lines), else the exit status. culprits: hosts at
    fault, by the head's names, empty where none can be named.
    """

    lines: tuple[str, ...]
    status: int = 0
    culprits: frozenset[str] = frozenset()


def arguments(
    device: str, hosts: Sequence[str], slots: Sequence[int], files: Sequence[str]
) -> tuple[str, ...]:
    """Of the preflight: slots of each host in order, and the configuration files to compare."""
    compared = ("--config-file", *files) if files else ()
    places = (f"{host}={number}" for host, number in zip(hosts, slots, strict=True))
    return ("--device", device, "--json", *compared, "--hosts", *places)


@dataclass
class Listener:
    """Collects what rank 0 says; what others say is in their logs."""

    said: list[str] = field(default_factory=list)

    def take(self, output: Output) -> None:
        """One piece of output."""
        if output.rank == 0:
            self.said.append(output.text)

    def report(self) -> Mapping[str, Any] | None:
        """The preflight's report, None where it gave none."""
        text = "".join(self.said)
        for found in re.finditer(r"^\{$", text, re.MULTILINE):
            try:
                report = json.JSONDecoder().raw_decode(text, found.start())[0]
            except ValueError:
                continue
            return report if report.get("format") == "alphazero-preflight" else None
        return None


def judge(
    report: Mapping[str, Any] | None, outcome: Outcome, hosts: Sequence[str], slots: Sequence[int]
) -> Verdict:
    """The verdict on a preflight that ran on `slots` ranks of each of `hosts`."""
    host_of = [host for host, number in zip(hosts, slots, strict=True) for _ in range(number)]
    if report is None or outcome.lost:
        return _without_report(outcome, host_of)
    findings = [finding_from_json(told) for told in report["findings"]]
    faults = [finding for finding in findings if finding.severity == Severity.FAIL]
    lines = [f"error: preflight: {finding.line()}" for finding in faults]
    lines += [
        f"warning: preflight: {finding.line()}" for finding in findings if finding.severity == Severity.WARN
    ]
    if faults:
        culprits = frozenset(filter(None, (_host(finding, host_of) for finding in faults)))
        return Verdict(tuple(lines), FAILED, culprits)
    return Verdict((summary(report, len(hosts)), *lines))


def summary(report: Mapping[str, Any], num_hosts: int) -> str:
    """One line: who was there, and how fast they are together."""
    on = "1 host" if num_hosts == 1 else f"{num_hosts} hosts"
    line = f"preflight: {len(report['ranks'])} ranks on {on}, {report['backend']}"
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


def _without_report(outcome: Outcome, host_of: Sequence[str]) -> Verdict:
    """Ranks that died, never came or stood still; hosts that were lost."""
    failure = outcome.failure
    if failure is None:
        return Verdict(("error: preflight: ended without a report",), FAILED)
    status = failure.status or FAILED
    if failure.ranks and not outcome.lost:
        # The rank that says so is not the one at fault.
        culprits = frozenset(host_of[rank] for rank in failure.ranks if rank < len(host_of))
        return Verdict((f"error: preflight: {failure.cause}",), status, culprits)
    # A rank's word on something it found, such as a closed network, blames no host.
    found = failure.rank is not None and failure.kind in ERRORS_BY_KIND
    culprits = outcome.lost or (frozenset() if found else frozenset({failure.host}))
    return Verdict((f"error: preflight: {failure.line}",), status, culprits)
