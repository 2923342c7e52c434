"""When a job stands still, and who is blamed."""

import pytest

from alphazero.run.rank import Phase
from alphazero.run.rank_watch import Limits, RankState, find_hang


def state(rank: int, **changed) -> RankState:
    """A rank in the middle of training, 0.1 s a step."""
    usual = {"step": 50, "phase": Phase.STEP, "progress": 0, "age_s": 0.5, "median_step_s": 0.1}
    return RankState(rank=rank, **{**usual, "pid": 100 + rank, "state": "S", **changed})


def test_a_job_that_moves_is_left_alone():
    assert find_hang([state(0), state(1, age_s=59.9)], Limits()) is None


@pytest.mark.parametrize(
    ("median_s", "age_s", "hangs"), [(0.1, 60.1, True), (7.0, 69.0, False), (7.0, 70.1, True)]
)
def test_the_limit_is_a_minute_or_ten_median_steps(median_s: float, age_s: float, hangs: bool):
    found = find_hang([state(0, median_step_s=median_s, age_s=age_s)], Limits())
    assert (found is not None) is hangs


@pytest.mark.parametrize(
    ("phase", "limit_s"),
    [
        (Phase.START, 1800),
        (Phase.PLAN, 1800),
        (Phase.DATA, 600),
        (Phase.VALIDATE, 600),
        (Phase.CHECKPOINT, 600),
        (Phase.SELF_PLAY, 300),
        (Phase.GATE, 300),
        (Phase.END, 60),
        (Phase.STEP, 60),
    ],
)
def test_every_phase_has_a_limit_of_its_own(phase: Phase, limit_s: float):
    assert find_hang([state(0, phase=phase, median_step_s=0.1, age_s=limit_s - 1)], Limits()) is None
    assert find_hang([state(0, phase=phase, median_step_s=0.1, age_s=limit_s + 1)], Limits()) is not None


def test_before_steps_are_timed_nothing_but_a_stopped_process_is_a_hang():
    slow = {"median_step_s": 0.0, "age_s": 61.0}
    assert find_hang([state(0, **slow)], Limits()) is None
    assert find_hang([state(0, **slow, state="T")], Limits()) is not None


def test_blamed_is_the_stopped_one_then_the_one_behind_then_the_longest_silent():
    waiting = [state(rank, age_s=62.0) for rank in (0, 1, 2)]
    stopped = state(3, age_s=61.0, state="T")
    behind = state(4, age_s=61.5, step=49)
    silent = state(5, age_s=62.5)
    for culprit, others in (
        (stopped, [behind, silent]),
        (behind, [silent]),
        (silent, []),
    ):
        found = find_hang([*waiting, culprit, *others], Limits())
        assert found is not None
        assert found.state == culprit


def test_a_launcher_that_waits_for_a_host_that_is_gone_is_told_from_a_rank():
    found = find_hang([state(0, phase=Phase.END, pid=0, state="", age_s=21.0)], Limits())
    assert found is not None
    assert "other hosts" in found.fate


def test_no_phase_is_without_a_limit():
    for phase in Phase:
        assert find_hang([state(0, phase=phase, age_s=1801.0)], Limits()) is not None


def test_a_rank_that_waits_for_one_that_still_plays_is_no_hang():
    waits = state(0, phase=Phase.DATA, age_s=900.0)
    plays = state(1, phase=Phase.SELF_PLAY, progress=700, age_s=0.5)
    assert find_hang([waits, plays], Limits()) is None
    found = find_hang([waits, state(1, phase=Phase.SELF_PLAY, progress=700, age_s=901.0)], Limits())
    assert found is not None
    assert found.state.rank == 1
    assert "50 (self-play, progress 700) for 901 s" in found.fate and "--hang-timeout" in found.expected


def test_a_start_that_takes_too_long_names_its_limit_and_the_import_of_games():
    start = {"phase": Phase.START, "step": -1, "median_step_s": 0.0}
    found = find_hang([state(0, age_s=1801.0, progress=57, **start)], Limits())
    assert found is not None
    assert "start, progress 57 for 1801 s" in found.fate + found.expected
    assert "--start-timeout" in found.expected and "`alphazero data import`" in found.expected


def test_a_rank_stopped_amid_its_games_is_found_while_others_play_on():
    stopped = state(1, phase=Phase.SELF_PLAY, age_s=61.0, state="T")
    found = find_hang([state(0, phase=Phase.SELF_PLAY), stopped], Limits())
    assert found is not None
    assert found.state == stopped


def test_ranks_that_wait_for_a_checkpoint_within_its_limit_are_no_hang():
    writes = state(0, phase=Phase.CHECKPOINT, age_s=60.0)
    assert find_hang([writes, state(1, age_s=59.0)], Limits()) is None


def test_a_launcher_that_waits_for_other_nodes_speaks_before_the_watch_does():
    waiting = {"step": -1, "phase": Phase.START, "median_step_s": 0.0, "pid": 0, "state": ""}
    assert find_hang([state(0, age_s=1801, **waiting)], Limits()) is None
    assert find_hang([state(0, age_s=1861, **waiting)], Limits()) is not None
