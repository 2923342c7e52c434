"""How far ranks are, by their agent's own clock: wall clocks that jump change nothing."""

import random
import time
from pathlib import Path

import psutil
import pytest

from alphazero.run.rank import HeartbeatWriter, Phase
from alphazero.run.rank_watch import Limits, RankWatch, find_hang

LIMITS = Limits(step_s=10.0)


class Clock:
    """Seconds that pass when a test says so, as time.monotonic() does."""

    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A machine whose wall clock is set by up to a minute, back and forth, each time somebody looks at it."""
    draw = random.Random(3)
    began = time.time()
    monkeypatch.setattr(time, "time", lambda: began + draw.uniform(-60, 60))
    return Clock()


def writers(run: Path, clock: Clock, job: str = "token") -> list[HeartbeatWriter]:
    return [HeartbeatWriter(run / "heartbeat", rank, "here", job, clock) for rank in (0, 1)]


def test_a_healthy_job_is_left_alone_whatever_the_wall_clock_says_and_a_hang_is_found(
    tmp_path: Path, clock: Clock
):
    watch = RankWatch(tmp_path, 0, 2, "token", clock, dict)
    ranks = writers(tmp_path, clock)
    for step in range(100):
        for rank in ranks:
            rank.beat(Phase.STEP, step)
        clock.now_s += 1.0
        assert find_hang(watch.look(), LIMITS) is None
    states = watch.look()
    assert [state.step for state in states] == [99, 99]
    assert states[0].median_step_s == pytest.approx(1.0)
    clock.now_s += 8.0
    assert find_hang(watch.look(), LIMITS) is None
    clock.now_s += 2.5
    assert find_hang(watch.look(), LIMITS) is not None


def test_self_play_that_goes_on_is_left_alone_and_a_hang_amid_it_is_found_within_minutes(
    tmp_path: Path, clock: Clock
):
    watch = RankWatch(tmp_path, 0, 2, "token", clock, dict)
    ranks = writers(tmp_path, clock)
    for batch in range(60):  # of a minute each: an hour in one phase of one step
        for rank in ranks:
            rank.beat(Phase.SELF_PLAY, 40, batch)
        clock.now_s += 60.0
        assert find_hang(watch.look(), LIMITS) is None
    ranks[0].beat(Phase.SELF_PLAY, 40, 60)  # rank 1 does not
    clock.now_s += 100.0
    watch.look()
    clock.now_s += 301.0
    hang = find_hang(watch.look(), LIMITS)
    assert hang is not None
    assert hang.state.rank == 1
    assert "(self-play, progress 59)" in hang.fate


def test_what_an_earlier_start_left_behind_is_not_taken_for_this_one(tmp_path: Path, clock: Clock):
    for rank in writers(tmp_path, clock, job="the start before"):
        rank.beat(Phase.END, 70)
    watch = RankWatch(tmp_path, 0, 2, "token", clock, dict)
    assert not watch.all_have_ended()
    assert [(state.step, state.phase) for state in watch.look()] == [(-1, Phase.START)] * 2
    for rank in writers(tmp_path, clock):
        rank.beat(Phase.END, 70)
    assert watch.all_have_ended()


def test_steps_of_another_plan_say_nothing_about_those_to_come(tmp_path: Path, clock: Clock):
    watch = RankWatch(tmp_path, 0, 1, "token", clock, dict)
    rank = writers(tmp_path, clock)[0]

    def median_after(phase: Phase, step: int) -> float:
        clock.now_s += 1.0
        rank.beat(phase, step)
        return watch.look()[0].median_step_s

    assert [median_after(Phase.STEP, step) for step in (0, 1, 2)] == [0, 1, 1]
    assert median_after(Phase.PLAN, 2) == 0
    clock.now_s += 60.0  # it compiles
    assert [median_after(Phase.STEP, step) for step in (2, 3, 4)] == [0, 0, 1]


def test_the_time_a_rank_has_to_start_begins_with_its_process(tmp_path: Path, clock: Clock):
    """Before, its launcher may have waited long for other nodes."""
    living: dict[int, psutil.Process] = {}
    watch = RankWatch(tmp_path, 0, 1, "token", clock, lambda: living)
    clock.now_s += 1700.0
    assert watch.look()[0].age_s == 1700.0
    living[0] = psutil.Process()
    assert watch.look()[0].age_s == 0.0
    clock.now_s += 5.0
    assert watch.look()[0].age_s == 5.0
