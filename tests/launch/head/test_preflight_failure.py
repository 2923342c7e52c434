"""What the head says of a preflight that failed: which host is to blame, and why."""

import pytest

from alphazero.launch.head.supervisor import explain_preflight
from alphazero.launch.plan.launch_plan import HostPlan, LaunchPlan, Remote
from alphazero.run.rank import Failure

HOSTS = (HostPlan(Remote("gpu-1"), "gpu-1", 2), HostPlan(Remote("gpu-2"), "gpu-2", 1))
PLAN = LaunchPlan(HOSTS, "cuda", "gpu-1", 12355)


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((2,), "gpu-2: late"),
        ((0, 2), "gpu-1, gpu-2: late"),
        ((7,), "gpu-1: late"),  # no such rank
        ((), "rank 0 on gpu-1 ended with exit status 2: late"),
    ],
)
def test_the_host_of_a_rank_at_fault_is_named_and_not_that_of_the_rank_that_says_so(ranks, told):
    failure = Failure("gpu-1", 0, "ended with exit status 2", "late", "", 2, "launch", ranks)
    assert explain_preflight(failure, PLAN) == told
