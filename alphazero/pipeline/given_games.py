"""The data source of supervised training: a window of given games that never changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alphazero.config import Config
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.window import Window
from alphazero.games.batch import MicroBatch
from alphazero.games.spec import GameSpec
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.loop.data_source import SourceState, Weights
from alphazero.training.loop.job import Job
from alphazero.training.runtime import Runtime, default_threads


def loader_threads(config: Config, runtime: Runtime) -> int:
    """Threads that encode positions: as asked, else one a rank on a CPU, a share of the cores on a GPU."""
    if config.data.num_workers >= 0:
        return max(1, config.data.num_workers)
    if runtime.device.type == "cpu":
        return 1
    return max(1, min(8, default_threads(runtime.local_world_size) // 2))


@dataclass(frozen=True)
class GivenGames:
    """All steps of a run on one window."""

    job: Job
    spec: GameSpec
    window: Window

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Nothing: the order is a function of the step."""

    def prepare(self, step: int, weights: Weights) -> int | None:
        """The end of the run: the data is there."""
        return self.job.num_steps

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterable[list[MicroBatch]]:
        """This rank's micro-batches of data steps first ... last - 1 under a plan."""
        config, runtime = self.job.config, self.job.runtime
        loader = Loader(
            self.window,
            self.spec,
            seed=config.training.seed,
            batch_size=plan.batch_size,
            micro_batch_size=plan.micro_batch_size,
            passes=plan.passes_of(runtime.rank),
            num_threads=loader_threads(config, runtime),
            history_fill=config.data.history_fill,
            symmetries=config.data.symmetries,
        )
        return loader.iterate(first, last)

    def state(self) -> SourceState:
        """The window's id."""
        return SourceState(self.window.id)
