"""The preflight as the head sees it: its program, and what its end means."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.base.errors import ERRORS_BY_KIND
from alphazero.launch.head.attempt import StartOutcome
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.run.rank_watch import Limits

LOG_DIRECTORY = "preflight"  # of the run directory: its logs are not the job's
# Stages of the preflight have separate limits, which name who is behind; this one is for all of it.
LIMITS = Limits(start_s=240.0)


@dataclass(frozen=True)
class PreflightVerdict:
    """What the preflight came to.

    status: 0 to continue, else the exit status, and error has the reason. culprits: hosts at fault, by the
    head's names, empty where none can be named.
    """

    error: str = ""
    status: int = 0
    culprits: frozenset[str] = frozenset()


def program(plan: LaunchPlan) -> tuple[str, ...]:
    """The preflight and its arguments."""
    return (*programs.words_of(programs.PREFLIGHT), "--device", plan.device)


def judge(outcome: StartOutcome, plan: LaunchPlan) -> PreflightVerdict:
    """The verdict on a preflight of this plan, by the ranks and hosts that failed or were lost."""
    failure = outcome.failure
    if failure is None:
        return PreflightVerdict()
    hosts = dict(enumerate(host.remote.name for host in plan.hosts for _ in range(host.num_ranks or 0)))
    line, blamed = failure.line, {failure.host}
    if outcome.lost:
        blamed = outcome.lost
    elif failure.ranks:  # the rank that reports it is not the one at fault
        blamed = {hosts[rank] for rank in failure.ranks if rank in hosts}
        line = f"{', '.join(sorted(blamed)) or failure.host}: {failure.cause}"
    elif failure.rank is not None and failure.kind in ERRORS_BY_KIND:
        blamed = set()  # a rank that reports what it found, such as a closed network, blames no host
    return PreflightVerdict(line, failure.status, frozenset(blamed))
