"""What people hear of: three intervals in a row, each cause once an hour, nothing that is muted."""

from typing import Any

from alphazero.training.loop.alarm_rules import Alarm, look_at_gpus
from alphazero.training.loop.alarms import AlarmDesk
from alphazero.training.loop.part_clock import Cause

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
            self.desk.look("gpus", "log intervals", look_at_gpus(share, causes, " on rank 3"))
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
    job.desk.tell(Alarm("disk", "full", "make room"))
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
