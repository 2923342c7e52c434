"""The preflight as the head sees it: its arguments, and what its report or its end means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from alphazero.base.errors import ERRORS_BY_KIND
from alphazero.base.records import from_json
from alphazero.launch.agent.protocol import Output
from alphazero.launch.head.attempt import StartOutcome
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.launch.preflight_report import PreflightReport
from alphazero.run.rank_watch import Limits

LOG_DIRECTORY = "preflight"  # of the run directory: its logs are not the job's
# Stages of the preflight have separate limits, which name who is behind; this one is for all of it.
LIMITS = Limits(start_s=240.0)
FAILED = 2
LAUNCHER_SAYS = "alphazero: "


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
    """The preflight and its arguments: the host of each rank, and the files to compare."""
    compared = ("--config-file", *files) if files else ()
    words = (*programs.words_of(programs.PREFLIGHT), "--device", plan.device, "--json", *compared)
    return (*words, "--hosts", *_hosts_by_rank(plan))


def _hosts_by_rank(plan: LaunchPlan) -> list[str]:
    return [host.remote.name for host in plan.hosts for _ in range(host.num_ranks or 0)]


def own_lines(output: Output) -> list[str]:
    """What our launcher on a host says in its output, without its name."""
    lines = output.text.splitlines()
    return [line.removeprefix(LAUNCHER_SAYS) for line in lines if line.startswith(LAUNCHER_SAYS)]


def find_report(outputs: Iterable[Output]) -> PreflightReport | None:
    """The preflight's report in what rank 0 has printed, None where it gave none."""
    text = "".join(output.text for output in outputs if output.rank == 0)
    for line in text.splitlines():
        try:
            return from_json(PreflightReport, line)
        except ValueError:  # something else that a rank prints
            continue
    return None


def judge(report: PreflightReport | None, outcome: StartOutcome, plan: LaunchPlan) -> PreflightVerdict:
    """The verdict on a preflight of this plan: by its report, else by the ranks and hosts that were lost."""
    hosts, failure = dict(enumerate(_hosts_by_rank(plan))), outcome.failure
    if report is not None and not outcome.lost:
        at_fault = {fault.rank for fault in report.failures}
        culprits = frozenset(host for rank, host in hosts.items() if rank in at_fault)
        status = FAILED if report.failures else 0
        return PreflightVerdict(report.lines, status, culprits)
    if failure is None:
        return PreflightVerdict(("error: preflight: ended without a report",), FAILED)
    line, blamed = failure.line, {failure.host}
    if outcome.lost:
        blamed = outcome.lost
    elif failure.ranks:  # the rank that reports it is not the one at fault
        line, blamed = failure.cause, {hosts[rank] for rank in failure.ranks if rank in hosts}
    elif failure.rank is not None and failure.kind in ERRORS_BY_KIND:
        blamed = set()  # a rank that reports what it found, such as a closed network, blames no host
    return PreflightVerdict((f"error: preflight: {line}",), failure.status or FAILED, frozenset(blamed))
