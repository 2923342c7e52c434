"""Training to the end, with returns to the last checkpoint where it diverges."""

from __future__ import annotations

from alphazero.base.errors import TrainingError
from alphazero.base.text import counted
from alphazero.network.weights.checkpoint import Checkpoint
from alphazero.run.metrics import newest_figures
from alphazero.run.rank import Phase
from alphazero.training.engine.engine import Engine
from alphazero.training.loop.job import DataSource, Position, RankServices, TrainingOutcome
from alphazero.training.loop.trainer import Trainer, Validate
from alphazero.training.start.run_start import Found
from alphazero.training.start.sharing import load_shared

# A run that diverges twice more, each time on other positions, does so again after that.
MOST_RETURNS = 2


def train_persistently(
    found: Found, source: DataSource, validate: Validate, services: RankServices
) -> TrainingOutcome:
    """Train to the end or a signal; after too many bad steps go back to the last checkpoint and train on.

    The positions that led there are not used again (as Chowdhery et al. 2022, PaLM, section 5.1): the
    order of the data moves on by what was lost. Raises TrainingError where MOST_RETURNS do not help.
    """
    job, plan, network, resumed = found.job, found.plan, found.network, found.start.resumed
    console, bad_steps = services.console, counted(job.config.training.max_skipped_steps, "step")
    position = _position_of(resumed)
    if resumed:
        ranks = counted(resumed.state.world_size, "rank")
        console.say(f"resumed from step {position.step}, saved by {ranks}")
    for rollbacks in range(MOST_RETURNS + 1):
        source.restore(resumed)
        engine = Engine(network, found.recipe, plan, job.runtime, console.alarm)
        if resumed:
            engine.load(resumed)
        last = None
        if resumed and job.runtime.is_main:  # the rank that prints
            last = newest_figures(job.run, "validation", position.step)
        trainer = Trainer(job, plan, position, engine, source, validate, services, last)
        outcome = trainer.run()
        if outcome is not TrainingOutcome.DIVERGED:
            return outcome
        plan, reached = trainer.plan, trainer.position
        engine.close()
        if rollbacks == MOST_RETURNS:
            break
        services.heartbeat.beat(Phase.PLAN, reached.step)
        if services.writer:
            services.writer.wait()
        resumed = load_shared(job.run.checkpoints, "", services.writes, services.exchange, console.alarm)
        network = found.starting.build(resumed)
        position = _position_after(reached, resumed, trainer.elapsed_s())
        services.metrics.rewind(position.step)
        console.warn(
            f"step {reached.step}: no finite gradients in {bad_steps}: back to step {position.step} with "
            f"other positions ahead ({rollbacks + 1} of {MOST_RETURNS} times)"
        )
    raise TrainingError(
        f"training diverges: no finite gradients in {bad_steps} in a row, "
        f"after {counted(MOST_RETURNS, 'return')} to the last checkpoint; "
        "expected a lower --learning-rate or gradient_clipping (ds_config.json), or another --precision",
        found_by_all_ranks=True,
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
