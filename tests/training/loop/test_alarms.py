"""What is reported: three intervals in a row, each cause once an hour, and which figures reach which rule."""

import itertools
import math
from typing import Any

import pytest

from alphazero.training.loop.alarm_rules import Alarm, judge_gpus
from alphazero.training.loop.alarms import AlarmDesk, JobAlarms
from alphazero.training.loop.part_clock import Cause
from alphazero.training.loop.usage import HostNow, IntervalUsage
from alphazero.training.ranks.batch import plan_batches

PLAN = plan_batches(64, 16, [1.0, 1.0], "cpu")
DATA = {Cause.DATA: 0.5, Cause.COMMUNICATION: 0.1}
CHECKPOINT = {Cause.DATA: 0.1, Cause.CHECKPOINT: 0.4}


class Watched:
    """A desk with a clock of its own, what it said and what it recorded."""

    def __init__(self, *muted: str) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.recorded: list[Any] = []
        record = lambda kind, fields: self.recorded.append((kind, dict(fields)))  # noqa: E731
        self.desk = AlarmDesk(self.said.append, record, muted, lambda: self.now)

    def looks(self, *busy: float, causes: dict[Cause, float] = DATA) -> int:
        """Lines said after further intervals of a minute each."""
        for share in busy:
            self.now += 60
            self.desk.look("gpus", "log intervals", judge_gpus(share, causes, " on rank 3"))
        return len(self.said)


def test_three_idle_intervals_in_a_row_are_told_and_two_are_not():
    job = Watched()
    assert job.looks(0.5, 0.5, 0.9, 0.5, 0.5, 0.8, 0.5, 0.5) == 0
    assert job.looks(0.42) == 1
    assert job.said[0].startswith(
        "alarm idle-gpus: the GPUs were busy 42% of the time, below 80%: they wait for data (50% of the time "
        "on rank 3), for 3 log intervals in a row; what to do: "
    )
    assert "--num-workers" in job.said[0]


def test_each_cause_is_told_once_an_hour():
    job = Watched()
    assert job.looks(*[0.5] * 60) == 1
    assert job.looks(0.5, causes=CHECKPOINT) == 2
    assert "they wait for checkpoints (40% of the time" in job.said[1]
    assert job.looks(0.5) == 2
    job.now += 3600
    assert job.looks(0.5) == 3
    assert job.looks(0.5, 0.5) == 3


def test_an_alarm_is_an_event_with_its_cause_text_and_advice():
    job = Watched()
    job.looks(0.5, 0.5, 0.5)
    ((kind, fields),) = job.recorded
    assert kind == "alarm"
    assert set(fields) == {"cause", "text", "advice"}
    assert job.said == [f"alarm {fields['cause']}: {fields['text']}; what to do: {fields['advice']}"]


def test_a_muted_cause_is_neither_said_nor_recorded_and_mutes_no_other():
    job = Watched("idle-gpus")
    assert job.looks(*[0.1] * 10) == 0
    assert job.recorded == []
    job.desk.report(Alarm("disk", "full", "make room"))
    assert job.said == ["alarm disk: full; what to do: make room"]


def test_in_a_row_means_the_same_rank_or_host():
    job = Watched()
    one, other = (
        Alarm("slow-rank", f"{name} is slow", "look", subject=name) for name in ("rank 1", "rank 2")
    )
    for found in ([one], [other], [one], [other], [], [one, other], [other]):
        job.desk.look("ranks", "intervals", found)
        assert job.said == []
    job.desk.look("ranks", "intervals", [other])
    assert job.said == ["alarm slow-rank: rank 2 is slow, for 3 intervals in a row; what to do: look"]


def test_two_watches_do_not_count_for_each_other():
    job = Watched()
    slow = Alarm("throughput", "slow", "look")
    for watch in ("speed", "speed of self-play") * 2:
        job.desk.look(watch, "intervals", [slow])
    assert job.said == []


class WatchedJob:
    """Alarms of a job of two ranks on two hosts, by cause."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self.now = 0.0
        record: Any = lambda kind, fields: self.causes.append(fields["cause"])  # noqa: E731
        desk = AlarmDesk(lambda line: None, record, clock=lambda: self.now)
        self.alarms = JobAlarms(desk, 1_000_000, ("a", "b"), lambda: self.now)
        self._steps = itertools.count(10, 10)

    def interval(self, seconds: float, work_s: tuple[float, float] = (1.0, 1.0), free: float = 1e12) -> None:
        self.now += seconds
        hosts = tuple(
            HostNow(name, 1e9 + self.now, self.now, free, 1e10, 2e10, 100 * self.now, 0)
            for name in ("a", "b")
        )
        usage = IntervalUsage(work_s_R=work_s, hosts=hosts)
        self.alarms.look_at_interval(next(self._steps), 10, seconds, usage, PLAN)


@pytest.fixture
def job() -> WatchedJob:
    return WatchedJob()


def test_a_steady_job_is_silent(job):
    for _ in range(100):
        job.interval(12.0)
    assert job.causes == []


def test_ten_seconds_are_the_shortest_interval_that_is_judged(job):
    for _ in range(100):
        job.interval(1.0)
    for _ in range(9):  # within one interval of ten seconds and more
        job.interval(2.0, work_s=(1.0, 9.0))
    assert job.causes == []
    for _ in range(10):
        job.interval(2.0, work_s=(1.0, 9.0))
    assert "slow-rank" in job.causes


def test_a_job_that_slows_down_is_told_once(job):
    for _ in range(10):
        job.interval(12.0)
    for _ in range(8):
        job.interval(24.0)
    assert job.causes == ["throughput"]


def test_a_disk_that_fills_is_told_by_the_rate_of_three_intervals(job):
    for free in (10e9, 9e9, 9e9, 8e9, 7e9):
        job.interval(60.0, free=free)
    assert job.causes == []
    job.interval(60.0, free=6e9)
    assert job.causes == ["disk"]


def test_validations_are_compared_with_the_training_since_the_last_one(job):
    held_out, training = (1.0, 0.95, 0.97, 0.98, 0.99), (1.0, 0.9, 0.8, 0.7, 0.6)
    for number, (one, other) in enumerate(zip(held_out, training, strict=True), start=1):
        for offset in (-0.05, 0.05):
            job.alarms.note_training({"value_loss": other + offset, "policy_loss": 2.0, "policy_top1": 0.1})
        job.alarms.look_at_validation(number, {"value_loss": one, "policy_loss": 2.0})
        assert job.causes == (["overfitting"] if number == 5 else [])


@pytest.mark.parametrize(
    ("figures", "cause"),
    [
        ({"policy_entropy": 0.01}, "entropy"),
        ({"wrong_resignations": 0.3, "checked_resignations": 30.0}, "resignations"),
        ({"evaluations_per_s": 10.0}, "throughput"),
        ({"batch_fill": 0.69}, "batch-fill"),
    ],
)
def test_generations_are_judged_by_their_figures(job, figures, cause):
    healthy = {
        **{"evaluations_per_s": 1000.0, "seconds": 10.0, "policy_entropy": 1.5, "positions": 100.0},
        **{"wrong_resignations": 0.0, "checked_resignations": 30.0, "batch_fill": 0.7},
    }
    for _ in range(6):
        job.alarms.look_at_generation(healthy, None)
    assert job.causes == []
    for _ in range(5):
        job.alarms.look_at_generation({**healthy, **figures}, None)
    assert job.causes == [cause]


def test_a_generation_in_which_no_game_ended_has_no_entropy(job):
    for _ in range(5):
        job.alarms.look_at_generation({"evaluations_per_s": 1000.0, "seconds": 10.0}, None)
    assert job.causes == []


def test_short_generations_are_judged_together(job):
    for rate in [1000.0] * 100 + [100.0, 2000.0] * 50:
        job.alarms.look_at_generation({"evaluations_per_s": rate, "seconds": 2.0}, None)
    assert job.causes == []


def test_gpus_that_wait_for_the_search_are_told_after_three_generations(job):
    for _ in range(3):
        job.alarms.look_at_generation({"evaluations_per_s": 1000.0, "seconds": 10.0}, 0.5)
    assert job.causes == ["idle-gpus"]


def test_the_time_left_is_that_of_all_steps_so_far_whatever_it_went_into():
    alarms = JobAlarms(num_steps=100, clock=iter([0.0, 50.0, 100.0]).__next__)
    assert [alarms._remaining_s(step) for step in (10, 20, 60)] == [math.inf, 400.0, 80.0]
