"""When a job stands still, and who is blamed."""

import pytest

from alphazero.cluster.agent.protocol import RankState
from alphazero.cluster.launch.hang_watch import find_hang
from alphazero.cluster.plan.launch_plan import Limits


def state(rank: int, **changed) -> RankState:
    """A rank in the middle of training, 0.1 s a step."""
    usual = {"step": 50, "phase": "step", "age_s": 0.5, "median_step_s": 0.1, "pid": 100 + rank, "state": "S"}
    return RankState(rank=rank, **{**usual, **changed})


def test_a_job_that_moves_is_left_alone():
    assert find_hang([state(0), state(1, age_s=9.9)], Limits()) is None


@pytest.mark.parametrize(
    ("median_s", "age_s", "hangs"), [(0.1, 10.1, True), (3.0, 29.0, False), (3.0, 30.1, True)]
)
def test_the_limit_is_ten_seconds_or_ten_median_steps(median_s: float, age_s: float, hangs: bool):
    found = find_hang([state(0, median_step_s=median_s, age_s=age_s)], Limits())
    assert (found is not None) is hangs


@pytest.mark.parametrize(
    ("phase", "limit_s"), [("", 1800), ("start", 1800), ("validate", 600), ("checkpoint", 600), ("end", 60)]
)
def test_other_phases_have_limits_of_their_own(phase: str, limit_s: float):
    assert find_hang([state(0, phase=phase, median_step_s=0.1, age_s=limit_s - 1)], Limits()) is None
    assert find_hang([state(0, phase=phase, median_step_s=0.1, age_s=limit_s + 1)], Limits()) is not None


def test_before_steps_are_timed_nothing_but_a_stopped_process_is_a_hang():
    slow = {"median_step_s": 0.0, "age_s": 60.0}
    assert find_hang([state(0, **slow)], Limits()) is None
    assert find_hang([state(0, **slow, state="T")], Limits()) is not None


def test_blamed_is_the_stopped_one_then_the_one_behind_then_the_longest_silent():
    waiting = [state(rank, age_s=12.0) for rank in (0, 1, 2)]
    stopped = state(3, age_s=11.0, state="T")
    behind = state(4, age_s=11.5, step=49)
    silent = state(5, age_s=12.5)
    for culprit, others in (
        (stopped, [behind, silent]),
        (behind, [silent]),
        (silent, []),
    ):
        found = find_hang([*waiting, culprit, *others], Limits())
        assert found is not None
        assert found.state == culprit


def test_a_launcher_that_waits_for_a_host_that_is_gone_is_told_from_a_rank():
    found = find_hang([state(0, phase="end", pid=0, state="", age_s=21.0)], Limits())
    assert found is not None
    assert "its launcher still waits for other hosts" in found.fate
