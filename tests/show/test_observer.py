"""What is seen of an interval: shares of time, GPUs of every host; which figures reach which rule."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alphazero.machine.judge import Finding, Severity
from alphazero.machine.nvml import GpuReading
from alphazero.show import observer as observer_module
from alphazero.show.alarms import Alarms
from alphazero.show.observer import PARTS, SELF_PLAY, TRAINING, GpuMeter, Observer, job_shares
from alphazero.training.loop.part_clock import WORK, Part

GIB = 1 << 30


def seconds(**parts: float) -> list[float]:
    """One rank's, in the order of columns."""
    return [parts.get(name, 0.0) for name in PARTS]


def test_the_names_of_parts_are_those_of_the_clock():
    assert set(PARTS) == {part.value for part in Part} - {"self-play", "waiting for games", "apart"}
    assert set(WORK.values()) - {""} == {TRAINING, SELF_PLAY}


def test_shares_are_of_the_training_time_and_add_up_to_one():
    job = job_shares(np.array([seconds(compute=6, data=1, messages=1, gradients=1, host=1)]))
    assert job.mean == pytest.approx(
        {"compute": 0.6, "data_wait": 0.1, "communication": 0.2, "checkpoint": 0.0, "host_overhead": 0.1}
    )
    assert sum(job.mean.values()) == pytest.approx(1.0, abs=1e-12)
    assert job.gradients == pytest.approx(0.1)


def test_the_rank_that_all_others_wait_for_is_the_one_that_communicates_least():
    ranks = [
        seconds(compute=4, gradients=6),
        seconds(compute=4, data=5, messages=1),
        seconds(compute=5, messages=5),
    ]
    job = job_shares(np.array(ranks))
    assert job.slowest_rank == 1
    assert job.slowest["data_wait"] > job.slowest["communication"]
    # The mean alone would blame the network.
    assert job.mean["communication"] > job.mean["data_wait"]


def test_idle_time_that_no_part_explains_is_that_of_launches():
    ranks = np.array([seconds(compute=8, data=1, host=1)])
    job = job_shares(ranks, idle=0.6)
    assert job.mean["host_overhead"] == pytest.approx(0.1 + 0.4)
    assert job.mean["compute"] == pytest.approx(0.4)
    # Busy all the time, as a driver says of a device that works off a long queue while the host waits.
    assert job_shares(ranks, idle=0.0).mean["host_overhead"] == pytest.approx(0.1)
    # Never more than there is.
    assert job_shares(ranks, idle=1.0).mean["compute"] == pytest.approx(0.0)


def test_a_rank_that_has_not_trained_yet_has_no_shares():
    assert job_shares(np.array([seconds(compute=1), seconds()])) is None


class Ranks:
    """Observers of ranks on the given (host, local rank, UUID), each in a thread when they look."""

    def __init__(self, *places: tuple[str, int, str], alarms: Any = None) -> None:
        self.doing = TRAINING
        self.said: list[str] = []
        self.causes: list[str] = []
        record: Any = lambda kind, fields: self.causes.append(fields["cause"])  # noqa: E731
        self._barrier = threading.Barrier(len(places))
        self._values: list[Any] = [None] * len(places)
        self.meters = [GpuMeter(lambda: self.doing) for _ in places]

        def make(rank: int) -> Observer:
            def gather(value: Any) -> list[Any]:
                self._values[rank] = value
                self._barrier.wait(10)
                values = list(self._values)
                self._barrier.wait(10)
                return values

            host, local, uuid = places[rank]
            alarms = Alarms(self.said.append, record)
            return Observer(gather, rank, host, local, Path(), alarms, gpu=uuid, meter=self.meters[rank])

        self.observers = self._on_each(make)

    def _on_each(self, action: Any) -> list[Any]:
        found: list[Any] = [None] * len(self._values)

        def run(rank: int) -> None:
            found[rank] = action(rank)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def look(self, work: str = TRAINING, seconds: float = 60.0, amount: float = 60.0, **named: Any) -> Any:
        """What rank 0 sees. named: lists by rank."""
        looks = self._on_each(
            lambda rank: self.observers[rank].look(
                work, seconds, amount, **{name: values[rank] for name, values in named.items()}
            )
        )
        assert all(seen == ("", {}) for seen in looks[1:])
        return looks[0]


def reading(index: int, uuid: str, busy: int | None, **figures: Any) -> GpuReading:
    return GpuReading(index, uuid=uuid, utilisation_percent=busy, **figures)


def test_every_gpu_of_every_host_is_told_with_means_of_its_readings():
    ranks = Ranks(("a", 0, "GPU-0"), ("a", 1, "GPU-1"), ("b", 0, "GPU-2"))
    first = reading(0, "GPU-0", 40, memory_used_bytes=2 * GIB, temperature_c=50, power_w=100.0)
    second = reading(0, "GPU-0", 60, memory_used_bytes=GIB, temperature_c=60, power_w=300.0)
    ranks.meters[0].add([first, reading(1, "GPU-1", 100)])
    ranks.meters[0].add([second, reading(1, "GPU-1", 100)])
    # The one that no rank computes on is not counted.
    ranks.meters[2].add([reading(3, "GPU-2", 10), reading(4, "GPU-unused", 0)])
    words, figures = ranks.look()
    assert figures["gpu"] == {
        "a/gpu0/utilisation_percent": 50,
        "a/gpu0/memory_used_gib": 2,
        "a/gpu0/temperature_c": 60,
        "a/gpu0/power_w": 200,
        "a/gpu1/utilisation_percent": 100,
        "b/gpu3/utilisation_percent": 10,
        "b/gpu4/utilisation_percent": 0,
    }
    assert words == "GPUs busy 53%"


def test_readings_are_told_once_and_apart_by_what_the_job_did():
    ranks = Ranks(("a", 0, "GPU-0"))
    for doing, busy in ((TRAINING, 90), ("", 0), (SELF_PLAY, 30), ("", 0)):
        ranks.doing = doing
        ranks.meters[0].add([reading(0, "GPU-0", busy)])
    assert ranks.look(SELF_PLAY)[0] == "GPUs busy 30%"
    assert ranks.look()[0] == "GPUs busy 90%"
    assert ranks.look() == ("", {"gpu": {}})


def test_a_lost_gpu_and_one_without_figures_do_no_harm():
    ranks = Ranks(("a", 0, "GPU-0"))
    ranks.meters[0].add([GpuReading(0, uuid="GPU-0", lost="GPU is lost"), reading(1, "GPU-1", None)])
    assert ranks.look() == ("", {"gpu": {}})


def test_hosts_of_one_name_are_told_apart_and_a_gpu_of_two_ranks_is_counted_once():
    ranks = Ranks(("a", 0, "GPU-0"), ("a", 1, "GPU-0"), ("a", 0, "GPU-1"))
    ranks.meters[0].add([reading(0, "GPU-0", 20)])
    ranks.meters[2].add([reading(0, "GPU-1", 40)])
    words, figures = ranks.look()
    assert set(figures["gpu"]) == {f"a-{at}/gpu0/utilisation_percent" for at in (0, 1)}
    assert words == "GPUs busy 30%"


def interval(ranks: Ranks, seconds: float, *work_s: float, amount: float = 640.0) -> None:
    parts = [{"compute": own, "messages": 0.1} for own in work_s or (1.0, 1.0)]
    ranks.look(TRAINING, seconds, amount, parts=parts, passes=[10, 10])


@pytest.fixture
def job(monkeypatch) -> Ranks:
    """Two ranks on two hosts with plenty of memory."""
    monkeypatch.setattr(
        observer_module,
        "read_host",
        lambda path: SimpleNamespace(memory_available=8 * GIB, memory_total=16 * GIB, disk_free=1e12),
    )
    return Ranks(("a", 0, ""), ("b", 0, ""))


def test_a_steady_job_is_silent(job):
    for _ in range(30):
        interval(job, 12.0)
    assert job.causes == []


def test_ten_seconds_are_the_shortest_interval_that_is_judged(job):
    for _ in range(9):  # within one interval of ten seconds and more, twice
        interval(job, 2.0, 1.0, 9.0)
    assert job.causes == []
    for _ in range(7):
        interval(job, 2.0, 1.0, 9.0)
    assert job.causes == ["slow-rank"]
    assert "rank 1 on b" in job.said[0]


def test_a_job_that_slows_down_is_told_once(job):
    for _ in range(10):
        interval(job, 12.0)
    for _ in range(8):
        interval(job, 24.0)
    assert job.causes == ["throughput"]


def test_self_play_is_judged_by_its_evaluations_and_by_how_busy_gpus_are(job):
    job.doing = SELF_PLAY
    for number in range(12):
        job.meters[0].add([reading(0, "", 90 if number < 6 else 50)])
        job.look(SELF_PLAY, 10.0, 10_000.0 if number < 6 else 1000.0)
    assert sorted(job.causes) == ["idle-gpus", "throughput"]
    assert any("self-play" in line and "--lanes" in line for line in job.said)


def test_intervals_in_which_no_gpu_was_read_leave_the_others_to_be_judged(job):
    for number in range(150):
        if number % 5 == 0:
            job.meters[0].add([reading(0, "", 40)])
        interval(job, 0.25)
    assert job.causes == ["idle-gpus"]
    assert "40%" in job.said[0]


def test_hosts_are_judged_by_what_they_have_left(job, monkeypatch):
    monkeypatch.setattr(
        observer_module,
        "read_host",
        lambda path: SimpleNamespace(memory_available=GIB, memory_total=16 * GIB, disk_free=GIB),
    )
    for _ in range(8):
        interval(job, 30.0)
    assert sorted(set(job.causes)) == ["disk", "memory"]


def test_a_finding_of_the_watch_is_an_alarm_at_once(job):
    for device in ("gpu0", "gpu0", "gpu1"):
        job.observers[0].report(
            Finding(Severity.WARN, "a", device, "GPU-1", "temperature_c", 90, 85, "check cooling")
        )
    assert job.causes == ["health", "health"]
    assert all(
        part in job.said[0] for part in ("a gpu0 (GPU-1)", "temperature_c = 90", "85", "check cooling")
    )
