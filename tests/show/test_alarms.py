"""Each rule of the alarms on a series made by hand, and what of it is reported."""

import inspect
import re
from collections.abc import Sequence
from typing import Any

import pytest

from alphazero.settings.sections import ALARMS
from alphazero.show import alarms, observer
from alphazero.show.alarms import (
    Alarm,
    Alarms,
    RateHistory,
    judge_disk,
    judge_gpus,
    judge_memory,
    judge_ranks,
)

GIB = 1 << 30
DATA = {"data": 0.5, "communication": 0.1}
CHECKPOINT = {"data": 0.1, "checkpoints": 0.4}


def test_every_rule_has_a_name_by_which_it_can_be_muted():
    source = inspect.getsource(alarms) + inspect.getsource(observer)
    assert set(re.findall(r'\bAlarm\(\s*"([a-z-]+)"', source)) == set(ALARMS)


class Watched:
    """Alarms with a clock of their own, what they said and what they recorded."""

    def __init__(self, *muted: str) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.recorded: list[Any] = []
        record = lambda kind, fields: self.recorded.append((kind, dict(fields)))  # noqa: E731
        self.alarms = Alarms(self.said.append, record, muted, lambda: self.now)

    def looks(self, *busy: float, waits: dict[str, float] = DATA) -> int:
        """Lines said after further intervals of a minute each."""
        for share in busy:
            self.now += 60
            self.alarms.take("training", judge_gpus(share, waits, " on rank 3"))
        return len(self.said)


def test_three_idle_intervals_in_a_row_are_told_and_two_are_not():
    job = Watched()
    assert job.looks(0.5, 0.5, 0.9, 0.5, 0.5, 0.8, 0.5, 0.5) == 0
    assert job.looks(0.42) == 1
    for part in ("idle-gpus", "42%", "80%", "data", "50%", "rank 3", "--num-workers"):
        assert part in job.said[0]


def test_each_cause_is_told_once_an_hour():
    job = Watched()
    assert job.looks(*[0.5] * 60) == 1
    assert job.looks(0.5, waits=CHECKPOINT) == 2
    assert "checkpoints (40%" in job.said[1]
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
    assert all(text in job.said[0] for text in fields.values())


def test_a_muted_cause_is_neither_said_nor_recorded_and_mutes_no_other():
    job = Watched("idle-gpus")
    assert job.looks(*[0.1] * 10) == 0
    assert job.recorded == []
    job.alarms.report(Alarm("disk", "full", "make room"))
    assert len(job.said) == 1


def test_in_a_row_means_the_same_rank_or_host_and_the_same_work():
    job = Watched()
    one, other = (
        Alarm("slow-rank", f"{name} is slow", "look", subject=name) for name in ("rank 1", "rank 2")
    )
    for found in ([one], [other], [one], [other], [], [one, other], [other]):
        job.alarms.take("training", found)
        job.alarms.take("self-play", [one] if found == [other] else [])
        assert job.said == []
    job.alarms.take("training", [other])
    assert [line for line in job.said if "rank 2 is slow" in line] == job.said != []


def rates(*values: float) -> list[list[Alarm]]:
    history = RateHistory("training", "positions/s")
    return [history.judge(value) for value in values]


def test_a_rate_under_seven_tenths_of_the_median_is_found_once_there_is_a_median():
    *before, found = rates(100, 100, 110, 90, 100, 71, 69)
    assert not any(before)
    assert all(part in found[0].text for part in ("69 positions/s", "69%", "100", "70%"))


def test_slow_first_intervals_and_a_rate_that_grows_are_no_fault():
    assert not any(rates(1, 2, 3, 100, 100, 100, 100, 200, 400, 400, 400))
    assert not any(rates(100, 10, 10, 10, 10))


def test_a_job_that_stays_slow_becomes_its_own_median():
    found = rates(*[100] * 6, *[50] * 20)
    assert all(found[6:12])
    assert not found[-1]


def test_a_disk_with_little_room_is_found():
    assert judge_disk("a", 5 * GIB) == []
    (alarm,) = judge_disk("a", 4.5 * GIB)
    assert all(part in alarm.text for part in ("on a ", "4.5 GiB", "5 GiB"))


@pytest.mark.parametrize(
    ("work_s", "passes", "slow"),
    [
        ([1.0, 1.0, 1.0, 1.0], [10, 10, 10, 10], None),
        ([1.0, 1.0, 1.6, 1.1], [10, 10, 10, 10], ("rank 2 on c", "160 ms", "1.6 times")),
        ([1.0, 1.4], [10, 10], None),
        ([1.0, 2.5], [10, 10], ("rank 1 on b", "250 ms", "2.5 times")),
        ([1.0, 2.0], [10, 20], None),  # a share of its own, by weight
        ([0.001, 0.003], [10, 10], None),  # 0.2 ms
        ([1.0], [10], None),
        ([1.0, 1.0], [10, 0], None),
    ],
)
def test_the_slowest_rank_is_named_with_its_host(work_s: Sequence[float], passes, slow):
    found = judge_ranks(work_s, passes, ("a", "b", "c", "d")[: len(work_s)])
    assert len(found) == (slow is not None)
    assert all(part in found[0].text for part in slow or ())


def test_a_host_with_little_memory_is_found():
    assert judge_memory("a", 8 * GIB, 16 * GIB) == []
    (alarm,) = judge_memory("b", 1.5 * GIB, 16 * GIB)
    assert all(part in alarm.text for part in ("b has 1.5 of 16.0 GiB", "10%"))
