"""What a trainer's GPUs wait for: every cause brought about on purpose, and named in the warning."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alphazero.machine.nvml import GpuReading
from alphazero.network.model.loss import SUM_NAMES
from alphazero.run.directory import RunDirectory
from alphazero.settings.load import load_config
from alphazero.show import observer as observer_module
from alphazero.show.alarms import Alarms
from alphazero.show.observer import GpuMeter, Observer
from alphazero.training.engine.gradients import GOOD
from alphazero.training.loop.job import Job, Position, TrainingOutcome
from alphazero.training.loop.part_clock import HostMoment, PartClock
from alphazero.training.loop.trainer import Trainer
from alphazero.training.ranks.batch import plan_batches

NUM_STEPS = 6


class SlowJob:
    """A trainer of one rank without a network; `slow` says how long each part takes by its own clock."""

    def __init__(self, directory: Path, slow: dict[str, float], busy: int | None) -> None:
        self.now = 0.0
        self._slow = {"passes": 1.0, **slow}
        self.said: list[str] = []
        self.written: list[tuple[str, dict[str, float]]] = []
        settings = {"batch_size": "8", "validation_interval": "0", "log_interval": "1"}
        config = load_config("", {**settings, "checkpoint_interval": "1"})
        runtime: Any = SimpleNamespace(
            device=torch.device("cpu"), is_main=True, world_size=1, local_rank=0, rank=0, backend="nccl"
        )
        job = Job(config, runtime, RunDirectory(directory), NUM_STEPS, num_samples=0)
        exchange: Any = SimpleNamespace(
            rank=0,
            world_size=1,
            numbers=lambda number: self.takes("messages", [number]),
            gather=lambda own: [own],
            sum=lambda values: values,
            from_rank=lambda rank, value: value,
            raise_any=lambda fault: None,
            require_equal=lambda named, when: self.takes("checkpoint", 0),
        )
        clock = PartClock(lambda: HostMoment(self.now))
        if busy is not None:
            self._meter = GpuMeter(lambda: clock.work)
            self._reading = GpuReading(0, uuid="GPU-0", utilisation_percent=busy)
            self._meter.add([GpuReading(0, uuid="GPU-0", utilisation_percent=0)])  # of the start: not counted
        observer = Observer(
            exchange.gather,
            0,
            "host",
            0,
            directory,
            Alarms(self.said.append, lambda kind, fields: None),
            gpu="GPU-0",
            meter=getattr(self, "_meter", None),
            gradients_look_busy=True,
        )
        services: Any = SimpleNamespace(
            exchange=exchange,
            clock=clock,
            observer=observer,
            console=SimpleNamespace(
                say=lambda text, *more: self.said.append(text),
                warn=self.said.append,
                note_bar=lambda note, left_s: None,
                working=lambda what: contextlib.nullcontext(),
                start_bar=lambda done, total: None,
                advance_bar=lambda: self.takes("host", None),
                end_bar=lambda: None,
            ),
            metrics=SimpleNamespace(
                write=lambda kind, step, figures: self.written.append((kind, figures)), flush=lambda: None
            ),
            heartbeat=SimpleNamespace(beat=lambda phase, step: None),
            stop=SimpleNamespace(requested=False),
            writer=None,
            before_save=lambda beat: None,
            profile=None,
            start_clock=SimpleNamespace(first_step_ended=lambda device, say: None),
        )
        source: Any = SimpleNamespace(prepare=lambda step, weights: NUM_STEPS, steps=self.steps)
        plan = plan_batches(8, 8, [1.0], "cpu")
        self.trainer = Trainer(
            job, plan, Position(0), self.engine(), source, lambda network, step: {}, services
        )

    def takes(self, part: str, value: Any) -> Any:
        self.now += self._slow.get(part, 0.0)
        return value

    def steps(self, plan: Any, first: int, last: int) -> Iterator[list[Any]]:
        batch = SimpleNamespace(sample_id=torch.zeros(1))
        for _ in range(first, last):
            self.takes("data", None)
            if getattr(self, "_meter", None):
                self._meter.add([self._reading])
            yield [SimpleNamespace(is_padding=False, batch=batch)]

    def engine(self) -> Any:
        sums = torch.ones(len(SUM_NAMES), dtype=torch.float64)
        timed: list[Callable[[], Any]] = []

        def finish_step(*args: Any) -> None:
            with timed[0]():
                self.takes("gradients", None)

        return SimpleNamespace(
            loss_scale=SimpleNamespace(scale=1.0, at_minimum=True, state=dict),
            accumulate=lambda batch, count: self.takes("passes", SimpleNamespace(sums=sums)),
            gradients_are_finite=lambda: True,
            finish_step=finish_step,
            is_told_late=False,
            last_pass_was_graphed=False,
            take_verdict=lambda: GOOD,
            time_communication=timed.append,
            inference_tensors=dict,
            named_tensors=dict,
            optimizer_state=dict,
            averaged_tensors=lambda tensors: None,
        )

    def run(self) -> None:
        assert self.trainer.run() is TrainingOutcome.FINISHED

    def kind(self, name: str) -> list[dict[str, float]]:
        return [figures for kind, figures in self.written if kind == name]

    def warnings(self) -> list[str]:
        return [line for line in self.said if line.startswith("alarm idle-gpus: ")]


@pytest.fixture
def job(tmp_path, monkeypatch) -> Callable[..., SlowJob]:
    """A SlowJob that has run."""

    def run(slow: dict[str, float], busy: int | None) -> SlowJob:
        monkeypatch.setattr(observer_module, "SHORTEST_INTERVAL_S", 0.0)
        slow_job = SlowJob(tmp_path, slow, busy)
        slow_job.run()
        return slow_job

    return run


@pytest.mark.parametrize(
    ("slow", "busy", "share", "cause"),
    [
        ({"data": 3.0}, 25, "data_wait", "data (75% of the time)"),
        ({"messages": 3.0}, 25, "communication", "communication (75% of the time)"),
        # NCCL's kernels keep the driver's figure up while they wait for another rank.
        ({"gradients": 3.0}, 100, "communication", "communication (75% of the time)"),
        ({"host": 3.0}, 25, "host_overhead", "host launches (75% of the time)"),
        # Nothing but passes, in which the device waits for the next kernel most of the time.
        ({}, 30, "host_overhead", "host launches (70% of the time)"),
        ({"checkpoint": 3.0}, 25, "checkpoint", "checkpoints (75% of the time)"),
    ],
)
def test_each_cause_is_measured_and_named_once(job, slow, busy, share, cause):
    slow_job = job(slow, busy)
    shares = slow_job.kind("time_share")
    assert len(shares) == NUM_STEPS
    names = {"compute", "data_wait", "communication", "checkpoint", "host_overhead", "slowest_rank"}
    for figures in shares:
        assert set(figures) == names
        assert sum(figures.values()) - figures["slowest_rank"] == pytest.approx(1.0, abs=1e-9)
    assert shares[3][share] == pytest.approx(0.75 if slow else 0.7)
    (warning,) = slow_job.warnings()
    assert cause in warning
    assert slow_job.kind("gpu")[0] == {"host/gpu0/utilisation_percent": busy}
    assert any(f"GPUs busy {25 if slow else busy}% | " in line for line in slow_job.said)


def test_a_job_whose_gpus_are_busy_is_not_warned(job):
    slow_job = job({"data": 0.1}, 90)
    assert slow_job.warnings() == []
    assert slow_job.kind("gpu")


def test_ranks_on_a_cpu_have_shares_and_neither_gpus_nor_warnings(job):
    slow_job = job({"data": 3.0}, None)
    assert slow_job.warnings() == []
    assert slow_job.kind("gpu") == []
    assert slow_job.kind("time_share")[0]["data_wait"] == pytest.approx(0.75)
    assert not any("GPUs busy" in line for line in slow_job.said)
    assert any("| waits: data 75% | ETA" in line for line in slow_job.said)
