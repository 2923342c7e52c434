"""The preflight as the head sees it: its program, and what its end means."""

from __future__ import annotations

from collections.abc import Set

from alphazero.base.errors import ERRORS_BY_KIND
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import LaunchPlan
from alphazero.run.rank import Failure
from alphazero.run.rank_watch import Limits

LOG_DIRECTORY = "preflight"  # of the run directory: its logs are not the job's
# Stages of the preflight have separate limits, which name who is behind; this one is for all of it.
LIMITS = Limits(start_s=240.0)


def program(plan: LaunchPlan) -> tuple[str, ...]:
    """The preflight and its arguments."""
    return (*programs.words_of(programs.PREFLIGHT), "--device", plan.device)


def judge(failure: Failure, lost: Set[str], plan: LaunchPlan) -> tuple[str, frozenset[str]]:
    """What is wrong, and the hosts at fault by the head's names, none where none can be named."""
    hosts = dict(enumerate(host.remote.name for host in plan.hosts for _ in range(host.num_ranks or 0)))
    if lost:
        return failure.line, frozenset(lost)
    if failure.ranks:  # the rank that reports it is not the one at fault
        blamed = frozenset(hosts[rank] for rank in failure.ranks if rank in hosts)
        return f"{', '.join(sorted(blamed)) or failure.host}: {failure.cause}", blamed
    # A rank that reports what it found, such as a closed network, blames no host.
    is_report = failure.rank is not None and failure.kind in ERRORS_BY_KIND
    return failure.line, frozenset() if is_report else frozenset({failure.host})
