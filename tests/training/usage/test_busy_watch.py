"""The warning of idle GPUs: after three stretches in a row, once for each cause in an hour."""

from alphazero.training.usage.busy_watch import BusyWatch
from alphazero.training.usage.time_shares import Cause

DATA = {Cause.DATA: 0.5, Cause.COMMUNICATION: 0.1}
CHECKPOINT = {Cause.DATA: 0.1, Cause.CHECKPOINT: 0.4}


class Watched:
    """A watch with a clock of its own, and what it said."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.watch = BusyWatch("log intervals", self.said.append, lambda: self.now)

    def looks(self, *busy: float, causes: dict[Cause, float] = DATA) -> int:
        """Lines said after further stretches of a minute each."""
        for share in busy:
            self.now += 60
            self.watch.look(share, causes, " on rank 3")
        return len(self.said)


def test_three_idle_intervals_in_a_row_are_told_and_two_are_not():
    job = Watched()
    assert job.looks(0.5, 0.5, 0.9, 0.5, 0.5, 0.8, 0.5, 0.5) == 0
    assert job.looks(0.42) == 1
    assert job.said[0].startswith(
        "warning: the GPUs were busy 42% of the time, below 80% for 3 log intervals in a row: they wait for "
        "data (50% of the time on rank 3); what helps: "
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
