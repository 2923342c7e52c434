"""The data source of supervised training: a window of given games that never changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Window
from alphazero.games.batch import MicroBatch
from alphazero.games.spec import GameSpec
from alphazero.pipeline.sources.loading import make_loader
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.loop.data_source import SourceState, Weights
from alphazero.training.loop.job import Job


@dataclass(frozen=True)
class GivenGames:
    """All steps of a run on one window."""

    job: Job
    spec: GameSpec
    window: Window
    curve: ValueCurve | None = None  # of its evaluations, where they count

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Nothing: the order is a function of the step."""

    def prepare(self, step: int, weights: Weights) -> int | None:
        """The end of the run: the data is there."""
        return self.job.num_steps

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 under a plan."""
        config = self.job.config
        loader = make_loader(
            self.window,
            self.spec,
            plan,
            self.job.runtime,
            config.data,
            config.training.seed,
            value_q_ratio=config.data.data_value_q_ratio,
            curve=self.curve,
        )
        return loader.iterate(first, last)

    def state(self) -> SourceState:
        """The window's id."""
        return SourceState(self.window.id)
