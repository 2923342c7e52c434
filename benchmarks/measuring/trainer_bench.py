"""Steps as the trainer makes them, on the same micro-batches over and over, and when each one ended."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from alphazero.base.errors import TrainingError
from alphazero.games.batch import MicroBatch
from alphazero.games.registry import GameSpec, get_spec
from alphazero.machine.memory import HostMemory
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters
from alphazero.run.rank import HeartbeatWriter
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config
from alphazero.show.console import Console
from alphazero.training.engine.engine import Engine
from alphazero.training.engine.probe import random_batch
from alphazero.training.loop.job import Job, Position, RankServices, SourceState, Weights
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.trainer import Trainer
from alphazero.training.loop.writer import CheckpointWriter
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime

# Of no run: a clock or the caller ends these earlier.
ENDLESS_STEPS = 1_000_000
NO_CHECKPOINTS = 10**9 - 1


@dataclass(frozen=True)
class Bench:
    """What a rank needs to train a network that learns nothing of use."""

    config: Config
    runtime: Runtime
    plan: BatchPlan
    exchange: Exchange
    micro_batches: list[MicroBatch]

    @classmethod
    def make(cls, config: Config, runtime: Runtime, plan: BatchPlan, exchange: Exchange) -> Bench:
        """With this rank's micro-batches of random positions."""
        batch = random_batch(get_spec(config.network.game), plan.micro_batch_size)
        passes = plan.passes_of(runtime.rank)
        micro_batches = [MicroBatch(0, index or 0, batch, index is None) for index in passes]
        return cls(config, runtime, plan, exchange, micro_batches)

    @property
    def spec(self) -> GameSpec:
        """Of the network's game."""
        return get_spec(self.config.network.game)

    def with_training(self, **changes: object) -> Bench:
        """The same with other settings of training."""
        training = dataclasses.replace(self.config.training, **changes)  # type: ignore[arg-type]
        return dataclasses.replace(self, config=dataclasses.replace(self.config, training=training))

    def make_engine(self) -> Engine:
        """A fresh network in an engine."""
        network = AlphaZeroNet(self.config.network, self.spec, torch.Generator().manual_seed(0))
        settings = DeepSpeedSettings(zero_options={"reduce_bucket_size": 50_000_000})
        return Engine(network, self.spec, self.config, settings, self.plan, self.runtime)


@dataclass
class StepTimes:
    """How long to train, and what came of it: when each step ended by the clock.

    The device is waited for at the end of the warm-up and of the last step alone (`waits_each_step`: of
    all), so that the steps between run as in a real job. seconds: at least this long after the warm-up,
    and at least `least_steps`; 0 counts steps alone.
    """

    warm_up_steps: int = 3
    least_steps: int = 5
    seconds: float = 0.0
    waits_each_step: bool = False
    begun: float = 0.0
    ends: list[float] = field(default_factory=list)

    @classmethod
    def endless(cls) -> StepTimes:
        """Of a rank that trains until another one's clock ends it."""
        return cls(least_steps=ENDLESS_STEPS)

    def is_over(self) -> bool:
        """True once enough steps are measured."""
        measured = len(self.ends) - self.warm_up_steps
        if measured < self.least_steps:
            return False
        return time.perf_counter() - self.ends[self.warm_up_steps - 1] >= self.seconds

    def lengths(self) -> list[float]:
        """Seconds of each measured step. The device may be behind; their sum is right."""
        marks = self.ends[self.warm_up_steps - 1 :]
        return [after - before for before, after in itertools.pairwise(marks)]

    def mean_s(self) -> float:
        """Seconds of a measured step."""
        lengths = self.lengths()
        return sum(lengths) / len(lengths)

    def first_step_s(self) -> float:
        """The first step, in which kernels are chosen and compiled."""
        return self.ends[0] - self.begun


class StepClock(Console):
    """A console that says nothing, notes when each step of a trainer ends, and ends the training."""

    def __init__(self, runtime: Runtime, times: StepTimes, stop: StopRequest) -> None:
        super().__init__(is_main=False)
        self._runtime = runtime
        self._times = times
        self._stop = stop

    def start_bar(self, done: int, total: int) -> None:
        """Training begins."""
        wait(self._runtime.device)
        self._times.begun = time.perf_counter()

    def advance_bar(self) -> None:
        """A step is done, at least for the host."""
        times = self._times
        if self._stop.requested:
            return  # the step in which all ranks learn of it
        is_first = len(times.ends) + 1 == times.warm_up_steps
        if is_first or times.waits_each_step:
            wait(self._runtime.device)
        times.ends.append(time.perf_counter())
        if times.is_over():
            wait(self._runtime.device)
            times.ends[-1] = time.perf_counter()
            self._stop.signal = signal.SIGUSR1


@dataclass(frozen=True)
class RepeatedBatches:
    """A data source with the same micro-batches in every step."""

    plan: BatchPlan
    micro_batches: list[MicroBatch]

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """There is nothing to go back to."""

    def prepare(self, step: int, weights: Weights) -> int | None:
        """All steps at once."""
        return ENDLESS_STEPS

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterator[list[MicroBatch]]:
        """The micro-batches, over and over. Raises TrainingError where they did not fit into memory."""
        if plan != self.plan:
            raise TrainingError(
                f"micro-batches of {self.plan.micro_batch_size} do not fit into device memory"
            )
        for _ in range(first, last):
            yield copy.copy(self.micro_batches)

    def state(self) -> SourceState:
        """No data."""
        return SourceState("")


def train(bench: Bench, engine: Engine, times: StepTimes) -> None:
    """Run the trainer until `times` is over, without checkpoints.

    Of several ranks the first one's clock counts: the others need StepTimes.endless().
    """
    with tempfile.TemporaryDirectory() as directory:
        stop = StopRequest()
        clock = StepClock(bench.runtime, times, stop)
        run_trainer(bench, engine, clock, stop, Path(directory), ENDLESS_STEPS, NO_CHECKPOINTS, None)


def run_trainer(
    bench: Bench,
    engine: Engine,
    console: Console,
    stop: StopRequest,
    directory: Path,
    num_steps: int,
    checkpoint_interval: int,
    writer: CheckpointWriter | None,
) -> None:
    """The real trainer on repeated batches in a run directory of its own."""
    bench = bench.with_training(
        checkpoint_interval=str(checkpoint_interval), validation_interval=0, log_interval=num_steps
    )
    run = RunDirectory(directory / "run")
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    job = Job(bench.config, bench.runtime, run, num_steps, 10**9)
    services = RankServices(
        exchange=bench.exchange,
        console=console,
        metrics=AllWriters([]),
        heartbeat=HeartbeatWriter(run.heartbeats, bench.runtime.rank, bench.runtime.host),
        stop=stop,
        host_memory=HostMemory(host=bench.runtime.host),
        writer=writer,
    )
    source = RepeatedBatches(bench.plan, bench.micro_batches)
    Trainer(job, bench.plan, Position(0), engine, source, lambda network, step: {}, services).run()


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
