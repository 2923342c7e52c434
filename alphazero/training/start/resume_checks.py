"""What must be unchanged for a run to continue from its checkpoint; nothing is moved or written here."""

from __future__ import annotations

import shlex
from dataclasses import fields

from alphazero.base.errors import CheckpointError, ConfigError
from alphazero.base.text import counted, quoted
from alphazero.data.sampling.window import Window
from alphazero.network.model.sizes import on_meta_device
from alphazero.network.weights.checkpoint import Checkpoint, TrainingState
from alphazero.run.directory import RunDirectory
from alphazero.run.next_command import continuing, located
from alphazero.settings.data import SampleFilters
from alphazero.settings.load import Config
from alphazero.settings.scope import changed_settings, listed, require_same, require_same_run
from alphazero.training.loop.job import Job
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.shared_games import GenerationState, SharedGames, saved_lanes
from alphazero.training.start.run_start import Request, RunStart


def check_same_run(run: RunDirectory, resumed: Checkpoint, config: Config) -> list[str]:
    """A line for each setting that alters what is computed from here on.

    CheckpointError where these settings would make it another run, or rules in a changed Python file another
    network.
    """
    saved = resumed.state
    changes = [
        change
        for change in changed_settings(saved.config, config)
        if change.name != "precision" or "precision" in config.asked  # else `auto` chose it (planner.py)
    ]
    require_same_run(run.path, saved.step, changes)
    for name in ("place", "replay"):  # which a checkpoint, perhaps a stranger's, does not choose
        before = saved.config.get("self_play", {}).get(name)
        if before and not getattr(config.self_play, name):
            raise CheckpointError(
                f"{run.path}: --{name} was {quoted(before)} at step {saved.step}; expected it, or another "
                f"--{name}, on the command line",
                found_by_all_ranks=True,
            )
    for name, now in on_meta_device(config.network).state_dict().items():
        before = list(resumed.weights[name].shape)
        require_same(run.path, saved.step, f"by the game's rules {name}", before, list(now.shape))
    return [f"changed: {change}" for change in listed(changes)]


def check_same_data(job: Job, saved: TrainingState, window: Window | None, *, accept: bool) -> list[str]:
    """A line about other data that is taken on purpose; CheckpointError where it is not."""
    run, mode = job.run, job.config.self_play.mode
    before = "supervised" if not saved.self_play else saved.config["self_play"]["mode"]
    require_same(run.path, saved.step, "--mode", before, mode)
    # In mixed mode the given games are one part of the data; the games of the run itself are its own affair.
    old = (saved.window_id if before == "supervised" else saved.self_play.get("given_id", ""))[:12]
    if not old:  # no given games, or none recorded
        return []
    assert window is not None
    new = window.id[:12]
    if old == new:
        return []
    if not accept:
        ways_on = "the same games, --accept-new-data to continue with others, or --fresh-start"
        of_filters = {entry.name for entry in fields(SampleFilters)}
        changes = changed_settings(saved.config, job.config)
        filters = ", ".join(str(change) for change in changes if change.name in of_filters)
        name = f"data ({filters})" if filters else "data"
        require_same(run.path, saved.step, name, old, new, ways_on)
    return [f"changed: data {old} -> {new}"]


def check_self_play(start: RunStart, config: Config, exchange: Exchange) -> None:
    """CheckpointError on all ranks where the checkpoint has other lanes or its games are gone. Collective."""
    checkpoint = start.resumed
    if checkpoint is None or checkpoint.lanes is None:
        return
    saved_lanes(checkpoint.lanes, config.network.game, config.self_play.lanes, exchange)
    shared = SharedGames(start.run, config.network.game, start.writes, exchange)
    shared.holder_of(GenerationState.of(checkpoint.state.self_play))


def check_nothing_else_is_asked(job: Job, saved: TrainingState, changes: list[str], request: Request) -> None:
    """ConfigError where a run is complete and the flags ask for something that it was not trained with."""
    asked = [line.removeprefix("changed: ") for line in changes]
    ranks = job.runtime.world_size
    if ranks != saved.world_size and not request.is_restart:
        asked.append(f"ranks {saved.world_size} -> {ranks}")
    if asked:
        raise ConfigError(
            f"{job.run.path}: is complete at step {saved.step}, but with other settings than requested now "
            f"({', '.join(asked)}); expected --steps above {saved.step} to train on, --fresh-start or "
            "another --run-name",
            found_by_all_ranks=True,
        )


def complete(job: Job, saved: TrainingState, request: Request) -> str:
    """The message for a run that has nothing left to do."""
    name, weights = job.run.path.name, shlex.quote(str(job.newest_weights))
    more = continuing(request.command, name, "--steps", str(2 * saved.step))
    return "\n".join(
        (
            f"{job.run.path}: is complete at {counted(saved.step, 'step')}: nothing to do. You can now",
            f"  train on to step {2 * saved.step}:  {more}",
            f"  start a new run beside it:  {continuing(request.command, name, '--fresh-start')}",
            f"  play against it:  {located(f'alphazero play {weights}')}",
        )
    )
