"""What the trainer tells a supervisor: a step that compiles or is cut again is no ordinary step."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from alphazero.network.model.loss import SUM_NAMES
from alphazero.run.directory import RunDirectory
from alphazero.run.rank import Phase
from alphazero.settings.load import load_config
from alphazero.training.engine.gradients import GOOD, StepVerdict
from alphazero.training.loop.job import Job, Position, TrainingOutcome
from alphazero.training.loop.part_clock import PartClock
from alphazero.training.loop.progress import GRAPHED_PASSES, NUM_SUMS, Progress, StepSums
from alphazero.training.loop.trainer import Trainer
from alphazero.training.ranks.batch import plan_batches
from tests.support.gpu import on_cuda

CONFIG = load_config("", {"batch_size": "8", "validation_interval": "0"})


class FakeEngine:
    """Takes micro-batches of up to four positions."""

    loss_scale = SimpleNamespace(scale=1.0, at_minimum=True, state=dict)

    def accumulate(self, micro_batch: Any, count: int) -> SimpleNamespace:
        if count < 2:
            raise torch.OutOfMemoryError("a test")
        return SimpleNamespace(sums=torch.ones(len(SUM_NAMES), dtype=torch.float64))

    def gradients_are_finite(self) -> bool:
        return True

    is_told_late = last_pass_was_graphed = False

    def finish_step(self, step: int, rate: float, count: int, bad_ranks: Sequence[int]) -> None:
        """Nothing is learned."""

    def take_verdict(self) -> StepVerdict:
        return GOOD

    abandon_step = staticmethod(lambda: None)
    time_communication = staticmethod(lambda timed: None)
    inference_tensors = named_tensors = optimizer_state = staticmethod(dict)
    averaged_tensors = staticmethod(lambda tensors: None)


def services_of(said: list[str], beats: list[Phase], exchange: Any = None) -> Any:
    """Of a lone rank; what it says and where it beats."""
    alone = SimpleNamespace(
        rank=0,
        world_size=1,
        numbers=lambda number: [number],
        sum=lambda values: values,
        from_rank=lambda rank, value: value,
        raise_any=lambda fault: None,
        require_equal=lambda named, when: 0,
    )
    return SimpleNamespace(
        exchange=exchange or alone,
        console=SimpleNamespace(
            say=lambda text, *more: said.append(text),
            warn=said.append,
            note_bar=lambda note, left_s: None,
            working=lambda what: contextlib.nullcontext(),
            start_bar=lambda done, total: None,
            advance_bar=lambda: None,
            end_bar=lambda: None,
        ),
        metrics=SimpleNamespace(flush=lambda: None),
        heartbeat=SimpleNamespace(beat=lambda phase, step: beats.append(phase)),
        stop=SimpleNamespace(requested=False),
        writer=None,
        before_save=lambda beat: None,
        profile=None,
        observer=None,
        clock=PartClock.on(torch.device("cpu")),
        start_clock=SimpleNamespace(first_step_ended=lambda device, say: None),
    )


def runtime_of(device: str = "cpu") -> Any:
    where = torch.device(device)
    return SimpleNamespace(device=where, is_main=False, world_size=1, local_rank=0, rank=0, backend="gloo")


def source_of(*ends: int) -> Any:
    """Positions until each of these steps, one after the other."""
    left = list(ends)
    return SimpleNamespace(
        prepare=lambda step, weights: left.pop(0),
        steps=lambda plan, first, last: ([SimpleNamespace(is_padding=True)] for _ in range(first, last)),
    )


def test_the_first_step_of_every_plan_is_told_apart_from_the_others(tmp_path: Path):
    beats: list[Phase] = []
    said: list[str] = []
    job = Job(CONFIG, runtime_of(), RunDirectory(tmp_path), num_steps=3, num_samples=0)
    plan = plan_batches(8, 8, [1.0], "cpu")
    trainer = Trainer(
        job,
        plan,
        Position(0),
        FakeEngine(),  # type: ignore[arg-type]
        source_of(3, 3),
        lambda network, step: {},
        services_of(said, beats),
    )
    assert trainer.run() is TrainingOutcome.FINISHED
    assert any("of 4, were 8" in line for line in said)
    data, plan_, step, save, end = Phase.DATA, Phase.PLAN, Phase.STEP, Phase.CHECKPOINT, Phase.END
    # Out of memory in the first step; then two micro-batches of four positions.
    assert beats == [data, plan_, plan_, data, plan_, step, step, save, end]


class LateEngine(FakeEngine):
    """The host runs ahead of it: whoever asks for a verdict waits for the step."""

    is_told_late = True

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def accumulate(self, micro_batch: Any, count: int) -> SimpleNamespace:
        self._log.append("pass")
        return SimpleNamespace(sums=torch.ones(len(SUM_NAMES), dtype=torch.float64))

    def finish_step(self, step: int, rate: float, count: int, bad_ranks: Sequence[int]) -> None:
        self._log.append(f"step {step + 1}")

    def take_verdict(self) -> StepVerdict:
        self._log.append("wait")
        return GOOD


def run_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Sequence[int]) -> list[str]:
    """What a trainer does that logs each second step; data is made until each of the ends."""
    log: list[str] = []
    monkeypatch.setattr(Progress, "write", lambda self, step, plan: log.append(f"figures of {step}"))
    config = load_config("", {"batch_size": "8", "validation_interval": "0", "log_interval": "2"})
    job = Job(config, runtime_of(), RunDirectory(tmp_path), num_steps=ends[-1], num_samples=0)
    source = source_of(*ends)
    prepare = source.prepare
    source.prepare = lambda step, weights: (log.append("data"), prepare(step, weights))[1]
    plan = plan_batches(8, 8, [1.0], "cpu")
    engine: Any = LateEngine(log)
    services = services_of([], [])
    trainer = Trainer(job, plan, Position(0), engine, source, lambda network, step: {}, services)
    assert trainer.run() is TrainingOutcome.FINISHED
    return log


def test_a_log_line_never_waits_for_a_step_while_the_next_one_is_not_on_its_way(tmp_path, monkeypatch):
    """Otherwise the device would run empty at every logged step."""
    log = run_late(tmp_path, monkeypatch, [4])
    begin = ["data", "pass", "step 1", "pass", "wait", "step 2"]
    middle = ["pass", "wait", "figures of 2", "step 3", "pass", "wait", "step 4"]
    assert log == [*begin, *middle, "wait", "figures of 4"]


def test_a_log_line_does_not_wait_for_the_games_of_the_next_generation(tmp_path, monkeypatch):
    log = run_late(tmp_path, monkeypatch, [2, 4])
    assert log[:8] == ["data", "pass", "step 1", "pass", "wait", "step 2", "wait", "figures of 2"]
    assert log[8:11] == ["data", "pass", "step 3"]


def test_the_share_of_passes_that_were_graphed_is_a_figure_of_each_step_on_gpus(tmp_path):
    """Two of four passes over all ranks; elsewhere there is no such figure."""
    for device, expected in (("cuda", 0.5), ("cpu", None)):
        written: list[dict[str, float]] = []
        services = services_of([], [])
        services.metrics.write = lambda kind, step, figures, to=written: to.append({"kind": kind, **figures})
        runtime = runtime_of(device)
        runtime.is_main = True
        job = Job(CONFIG, runtime, RunDirectory(tmp_path), num_steps=3, num_samples=0)
        progress = Progress(job, services, lambda: 1.0)
        sums = torch.ones(NUM_SUMS, dtype=torch.float64)
        sums[GRAPHED_PASSES] = 2.0
        progress.add(StepSums(1, sums, 4))
        progress.write(1, plan_batches(8, 2, [1.0], "cpu"))
        (figures,) = [one for one in written if one["kind"] == "step"]
        assert figures.get("graphed") == expected


@on_cuda(order=2, seconds=5)
def test_on_a_gpu_the_figures_of_a_step_leave_without_a_wait():
    sums = torch.ones(NUM_SUMS, dtype=torch.float64, device="cuda")
    StepSums(1, sums, 1).read()  # the first one makes pinned memory
    torch.cuda.synchronize()
    torch.cuda._sleep(10**9)  # the device is busy for some tenths of a second
    sums += 1.0
    step = StepSums(2, sums, 1)
    assert not torch.cuda.current_stream().query()
    sums += 1.0  # of the next step
    assert torch.equal(step.read(), torch.full((NUM_SUMS,), 2.0, dtype=torch.float64))
