"""What one rank trains and works with, its source of positions, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol

import torch

from alphazero.games.batch import MicroBatch
from alphazero.games.registry import GameSpec, get_spec
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.network.weights.weights import weights_file_name
from alphazero.run.directory import RunDirectory
from alphazero.run.metrics import AllWriters
from alphazero.run.rank import HeartbeatWriter
from alphazero.settings.load import Config
from alphazero.show.console import Console
from alphazero.show.observer import Observer
from alphazero.training.loop.part_clock import PartClock
from alphazero.training.loop.profile import StepProfile
from alphazero.training.loop.schedule import learning_rate
from alphazero.training.loop.start_clock import StartClock
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.writer import CheckpointWriter
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime


@dataclass(frozen=True)
class Job:
    """What is trained: fixed from the start to the end of a run.

    num_samples: positions of the given games, an epoch; 0 where games are played on the way.
    """

    config: Config
    runtime: Runtime
    run: RunDirectory
    num_steps: int
    num_samples: int

    @property
    def batch_size(self) -> int:
        """Positions per step over all ranks."""
        return self.config.training.batch_size

    @property
    def spec(self) -> GameSpec:
        """Of the game that the network plays."""
        return get_spec(self.config.network.game)

    @property
    def newest_weights(self) -> Path:
        """The file of the run's newest weights."""
        return self.run.path / weights_file_name(self.config.network)

    def learning_rate(self, step: int) -> float:
        """Of step `step`, counted from 0."""
        return learning_rate(self.config.optimizer, self.batch_size, step, self.num_steps)


# The network's whole tensors as it plays: averaged where a run keeps an average. Collective.
Weights = Callable[[], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class SourceState:
    """What a checkpoint keeps of a source.

    window_id: hash of the data that the order is a function of. self_play: of Generations, empty for given
    games. lanes: games under way, as play/lanes.py writes them. champion: the network that plays, whole,
    where it is not always the newest.
    """

    window_id: str
    self_play: dict[str, Any] = field(default_factory=dict)
    lanes: bytes | None = None
    champion: dict[str, torch.Tensor] | None = None


class DataSource(Protocol):
    """Gives micro-batches a stretch of steps at a time; every rank has one, and they agree."""

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Stand where the checkpoint stood, None: at the beginning. Collective."""

    def prepare(self, step: int, weights: Weights) -> int | None:
        """Make data for the steps from `step` on; the step at which it ends. Collective, may take long.

        None: a signal requested the end, and nothing has changed.
        """

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 under a plan."""

    def state(self) -> SourceState:
        """What a checkpoint of now keeps."""


class TrainingOutcome(Enum):
    """How a run of the trainer ended."""

    FINISHED = auto()
    STOPPED = auto()  # by a signal, after a checkpoint
    DIVERGED = auto()  # too many steps in a row without finite gradients


@dataclass
class Position:
    """Where a run stands. data_offset: steps the data order is ahead of the step count (see rollbacks)."""

    step: int
    data_offset: int = 0
    skipped_steps: int = 0
    elapsed_s: float = 0.0  # of earlier starts of the run


@dataclass(frozen=True)
class RankServices:
    """The services of a rank: how it reaches the other ranks, the user, the supervisor and the disk.

    metrics: without writers but on rank 0. writer: None on ranks that write no checkpoints. before_save:
    collective; returns when a checkpoint may be published, and calls what it is given while it waits. clock:
    what this rank's time goes into; start_clock: what its start took. observer: looks at how the job runs;
    nothing depends on what it sees. profile: records the steps that --profile names, on the ranks that it
    names.
    """

    exchange: Exchange
    console: Console
    metrics: AllWriters
    heartbeat: HeartbeatWriter
    stop: StopRequest
    clock: PartClock
    start_clock: StartClock
    writer: CheckpointWriter | None
    before_save: Callable[[Callable[[], None]], None] = lambda _: None
    observer: Observer | None = None
    profile: StepProfile | None = None

    @property
    def writes(self) -> bool:
        """True on the one rank of those sharing a run directory that writes there: checkpoints and games."""
        return self.writer is not None
