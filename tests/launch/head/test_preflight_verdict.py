"""What the head makes of the end of a preflight: go on, stop, and which host is to blame."""

import pytest

from alphazero.launch.head.preflight_verdict import judge
from alphazero.launch.plan.launch_plan import HostPlan, LaunchPlan, Remote
from alphazero.run.rank import Failure

HOSTS = (HostPlan(Remote("gpu-1"), "gpu-1", 2), HostPlan(Remote("gpu-2"), "gpu-2", 1))
PLAN = LaunchPlan(HOSTS, "cuda", "gpu-1", 12355)


def failure(
    host: str, status: int, fate: str, cause: str = "", kind: str = "", ranks: tuple[int, ...] = ()
) -> Failure:
    return Failure(host, 0, fate, cause, "/log", status, kind, ranks)


def test_a_rank_that_never_came_is_blamed_and_not_the_one_that_says_so():
    told = failure("gpu-1", 2, "ended with exit status 2", "rank 2: did not reach step", "launch", (2,))
    assert judge(told, set(), PLAN) == ("gpu-2: rank 2: did not reach step", {"gpu-2"})


def test_a_closed_network_is_no_hosts_fault():
    cause = "all ranks came to step 'process group' and none came through"
    told = failure("gpu-1", 2, "ended with exit status 2", cause, "launch")
    assert judge(told, set(), PLAN)[1] == frozenset()


@pytest.mark.parametrize("cause", ["", "rank 2: did not reach step 'start'", "Connection lost"])
@pytest.mark.parametrize(
    ("kind", "ranks", "culprits"),
    [
        ("launch", (0, 2), {"gpu-1", "gpu-2"}),
        ("launch", (7,), set()),  # no such rank
        ("lost connection", (), set()),
        ("crash", (), {"gpu-1"}),
        ("", (), {"gpu-1"}),
    ],
)
def test_culprits_are_read_from_kind_and_ranks_whatever_is_said(cause, kind, ranks, culprits):
    told = failure("gpu-1", 1, "ended with exit status 1", cause, kind, ranks)
    assert judge(told, set(), PLAN)[1] == culprits


def test_a_killed_rank_and_a_lost_host_are_blamed():
    killed = failure("gpu-2", 137, "was killed by SIGKILL", kind="signal")
    assert judge(killed, set(), PLAN)[1] == {"gpu-2"}
    assert judge(failure("gpu-1", 1, "lost a connection"), {"gpu-2"}, PLAN)[1] == {"gpu-2"}
