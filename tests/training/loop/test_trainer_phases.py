"""What the trainer tells a supervisor: a step that compiles or is cut again is no ordinary step."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from alphazero.network.model.loss import SUM_NAMES
from alphazero.run.directory import RunDirectory
from alphazero.run.rank import Phase
from alphazero.settings.load import load_config
from alphazero.training.engine.gradients import GOOD, StepVerdict
from alphazero.training.loop.alarms import JobAlarms
from alphazero.training.loop.job import Job, Position, TrainingOutcome
from alphazero.training.loop.trainer import Trainer
from alphazero.training.ranks.batch import plan_batches

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

    is_told_late = False

    def finish_step(self, step: int, rate: float, count: int, bad_ranks: Sequence[int]) -> None:
        """Nothing is learned."""

    def take_verdict(self) -> StepVerdict:
        return GOOD

    abandon_step = staticmethod(lambda: None)
    time_communication = staticmethod(lambda timed: None)
    inference_tensors = named_tensors = optimizer_state = staticmethod(dict)
    averaged_tensors = staticmethod(lambda tensors: None)


def test_the_first_step_of_every_plan_is_told_apart_from_the_others(tmp_path: Path):
    beats: list[Phase] = []
    said: list[str] = []
    micro_batch = SimpleNamespace(is_padding=True)
    source = SimpleNamespace(
        prepare=lambda step, weights: 3,
        steps=lambda plan, first, last: ([micro_batch] for _ in range(first, last)),
    )
    exchange = SimpleNamespace(
        rank=0,
        world_size=1,
        numbers=lambda number: [number],
        sum=lambda values: values,
        from_main=lambda value: value,
        raise_any=lambda fault: None,
        require_equal=lambda named, when: 0,
    )
    services: Any = SimpleNamespace(
        exchange=exchange,
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
        host_memory=SimpleNamespace(check=lambda: SimpleNamespace(is_low=False, is_critical=False)),
        writer=None,
        before_save=lambda beat: None,
        gpus=None,
        hosts=None,
        alarms=JobAlarms(),
    )
    runtime: Any = SimpleNamespace(
        device=torch.device("cpu"), is_main=False, world_size=1, local_rank=0, rank=0, backend="gloo"
    )
    job = Job(CONFIG, runtime, RunDirectory(tmp_path), num_steps=3, num_samples=0)
    plan = plan_batches(8, 8, [1.0], "cpu")
    trainer = Trainer(job, plan, Position(0), FakeEngine(), source, lambda network, step: {}, services)
    assert trainer.run() is TrainingOutcome.FINISHED
    assert any("micro-batches of 4, were 8" in line for line in said)
    data, plan_, step, save, end = Phase.DATA, Phase.PLAN, Phase.STEP, Phase.CHECKPOINT, Phase.END
    # Out of memory in the first step; then two micro-batches of four positions.
    assert beats == [data, plan_, plan_, data, plan_, step, step, save, end]
