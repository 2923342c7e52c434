"""Training to the end, with returns to the last checkpoint where it diverges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alphazero.base.errors import TrainingError
from alphazero.base.text import counted
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.run.metrics import newest_figures
from alphazero.run.rank import Phase
from alphazero.training.engine.deepspeed_config import Recipe
from alphazero.training.engine.engine import Engine
from alphazero.training.loop.job import DataSource, Job, Position, RankServices, TrainingOutcome
from alphazero.training.loop.trainer import Trainer, Validate
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.start.sharing import load_shared
from alphazero.training.start.starting_network import StartingNetwork

# A run that diverges twice more, each time on other positions, does so again after that.
MOST_RETURNS = 2


@dataclass(frozen=True)
class PersistentTraining:
    """Trains a job, and after too many bad steps goes back to the last checkpoint with other positions ahead.

    The positions that led there are not used again (as Chowdhery et al. 2022, PaLM, section 5.1): the
    order of the data moves on by what was lost.
    """

    job: Job
    recipe: Recipe
    starting: StartingNetwork
    source: DataSource
    validate: Validate
    services: RankServices

    def run(self, plan: BatchPlan, network: AlphaZeroNet, resumed: Checkpoint | None) -> TrainingOutcome:
        """Train to the end or a signal. Raises TrainingError where MOST_RETURNS do not help."""
        training, console = self.job.config.training, self.services.console
        position = _position_of(resumed)
        if resumed:
            console.say(
                f"resumed from step {position.step}, saved by {counted(resumed.state.world_size, 'rank')}"
            )
        for rollbacks in range(MOST_RETURNS + 1):
            self.source.restore(resumed)
            engine = self._engine(plan, network)
            if resumed:
                engine.load(resumed)
            last = self._last_validation(position.step) if resumed else None
            trainer = Trainer(
                self.job, plan, position, engine, self.source, self.validate, self.services, last
            )
            outcome = trainer.run()
            if outcome is not TrainingOutcome.DIVERGED:
                return outcome
            plan, reached = trainer.plan, trainer.position
            engine.close()
            if rollbacks == MOST_RETURNS:
                break
            self.services.heartbeat.beat(Phase.PLAN, reached.step)
            resumed = self._last_checkpoint()
            network = self.starting.build(resumed)
            position = _position_after(reached, resumed, trainer.elapsed_s())
            self.services.metrics.rewind(position.step)
            console.warn(
                f"step {reached.step}: no finite gradients in {counted(training.max_skipped_steps, 'step')}: "
                f"back to step {position.step} with other positions ahead "
                f"({rollbacks + 1} of {MOST_RETURNS} times)"
            )
        steps = counted(training.max_skipped_steps, "step")
        raise TrainingError(
            f"training diverges: no finite gradients in {steps} in a row, "
            f"after {counted(MOST_RETURNS, 'return')} to the last checkpoint; "
            "expected a lower --learning-rate or gradient_clipping (ds_config.json), or another --precision",
            found_by_all_ranks=True,
        )

    def _last_validation(self, step: int) -> Mapping[str, float] | None:
        """The newest one up to `step`, on the rank that prints."""
        if not self.job.runtime.is_main:
            return None
        return newest_figures(self.job.run, "validation", step)

    def _engine(self, plan: BatchPlan, network: AlphaZeroNet) -> Engine:
        job = self.job
        say = self.services.console.alarm
        return Engine(network, self.recipe, plan, job.runtime, say)

    def _last_checkpoint(self) -> Checkpoint | None:
        services = self.services
        if services.writer:
            services.writer.wait()
        return load_shared(
            self.job.run.checkpoints, "", services.writes, services.exchange, services.console.alarm
        )


def _position_of(resumed: Checkpoint | None) -> Position:
    if resumed is None:
        return Position(0)
    saved = resumed.state
    return Position(saved.step, saved.data_offset, saved.skipped_steps, saved.elapsed_s)


def _position_after(reached: Position, resumed: Checkpoint | None, elapsed_s: float) -> Position:
    """At the checkpoint's step, with the data that follows what was `reached`."""
    step = resumed.state.step if resumed else 0
    offset = reached.data_offset + reached.step - step
    return Position(step, offset, reached.skipped_steps, elapsed_s)
