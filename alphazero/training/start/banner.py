"""What a run prints at its start and at its end."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence

import torch

from alphazero.base.log import Topic, duration
from alphazero.base.text import counted
from alphazero.data.sampling.window import Window
from alphazero.games.outside.names import flag_of_rules
from alphazero.games.registry import get_game
from alphazero.network.model.precision import evaluation_precision
from alphazero.run.checkpoint_files import best_of, checkpoints_in, step_of
from alphazero.run.figures import RunFigures
from alphazero.run.metrics import explain_validation
from alphazero.run.next_command import continuing, located, uses_of
from alphazero.run.overview import network_text
from alphazero.run.rank import shows_common_errors
from alphazero.settings.sections import TrainingConfig
from alphazero.show.console import Console
from alphazero.show.tensorboard import events_directory
from alphazero.training.engine.deepspeed_config import deepspeed_stage
from alphazero.training.loop.job import Job
from alphazero.training.loop.progress import describe_validation
from alphazero.training.sources.given_games import loader_threads
from alphazero.training.start.run_start import Request, Setup

RULE = "=" * 78


def banner(setup: Setup, devices: Sequence[str]) -> str:
    """The facts to check before hours of training: who, where, what, on which data. devices: of all ranks."""
    job = setup.job
    training, shape = job.config.training, job.config.network
    whole = " with whole weights and gradients" if deepspeed_stage(job.config) < training.zero_stage else ""
    kind = f"DeepSpeed ZeRO-{training.zero_stage}{whole}, {job.runtime.backend}"
    encoders = loader_threads(job.config.data, job.runtime)
    num_positions = job.num_steps * job.batch_size
    length = f"length            {counted(job.num_steps, 'step')}, {counted(num_positions, 'position')}"
    if job.num_samples:
        length += f" ({num_positions / job.num_samples:.2f} epochs)"
    lines = [
        RULE,
        *setup.notices,
        f"run directory     {job.run.path}",
        f"distributed type  {kind}",
        f"processes         {len(devices)}",
        *(f"  rank {rank}: {device}" for rank, device in enumerate(devices)),
        f"threads per rank  {torch.get_num_threads()} compute, {encoders} encode positions",
        f"precision         {training.precision}{_extras(training)}",
        f"network           {shape.game} {network_text(dataclasses.asdict(shape))}, "
        f"{setup.network.parameter_count() / 1e6:.1f} M parameters",
        *_data(job, setup.window, setup.held_out),
        f"batch             {setup.plan}",
        length,
        RULE,
    ]
    return "\n".join(lines)


def _data(job: Job, window: Window | None, held_out: Window | None) -> list[str]:
    lines = []
    if window is not None:
        lines.append(
            f"data              {counted(window.num_games, 'game')}, "
            f"{counted(window.num_samples, 'position')} "
            f"(window {window.id[:12]})"
        )
        lines += [f"filter            {count}" for count in window.filtered]
    if held_out is not None:
        lines.append(f"held out          {counted(held_out.num_games, 'game')}")
    games, search = job.config.self_play, job.config.search
    if games.mode != "supervised":
        training = job.config.training.precision
        precision = evaluation_precision(
            games.evaluation_precision,
            training,
            job.runtime.device,
            job.config.network.body,
            job.config.network.game,
        )
        lines.append(
            f"self-play         {counted(games.generations, 'generation')}, {counted(games.lanes, 'lane')}, "
            f"{search.algorithm} with {counted(search.simulations, 'simulation')} per move, "
            f"rounds of {counted(games.simulations_per_round, 'simulation')}, "
            f"batches of {games.evaluation_batch} in {precision}"
        )
    return lines


def _extras(training: TrainingConfig) -> str:
    """What goes with the precision."""
    parts = [
        (training.precision == "fp16", f"loss scale from {training.loss_scale:g}"),
        (training.compile, "compiled"),
        (training.deterministic, "deterministic"),
        (bool(training.ema_decay), f"moving average {training.ema_decay:g} of the weights"),
    ]
    return "".join(f", {text}" for holds, text in parts if holds)


def summary(job: Job, seconds: float, command: Sequence[str]) -> str:
    """Where the result is, how good it is, what to do next. command: what the user typed."""
    game = job.config.network.game
    rules = flag_of_rules(game)
    events = events_directory(job.run, job.config.run)
    uses = uses_of(str(job.newest_weights), get_game(game).measured_by, rules)
    validations = RunFigures.read(job.run, only="validation").of("validation").rows()
    lines = [
        RULE,
        f"finished          {counted(job.num_steps, 'step')}; this start took {duration(seconds)}",
    ]
    if validations:
        lines.append(explain_validation(validations[-1], validations[0] if validations[1:] else None))
    for when, figures in (("first", validations[:-1][:1]), ("last", validations[-1:])):
        lines += [
            f"validation {when:<6} step {int(line['step']):,}: {describe_validation(line)}"
            for line in figures
        ]
    lines += [
        *_best_before(job),
        f"weights           {job.newest_weights}",
        "next, play against it or have a look at it:",
        *(f"  {located(command)}" for _, command in uses),
        f"  {located(shlex.join(['alphazero', 'report', str(job.run.path), *rules]))}",
        f"  {located(f'tensorboard --logdir {shlex.quote(str(events.parent))}')}",
        f"continue with: {continuing(command, job.run.path.name, '--steps', str(2 * job.num_steps))}",
        RULE,
    ]
    return "\n".join(lines)


def _best_before(job: Job) -> list[str]:
    """The checkpoint that validates better than the last step, by exact truth where there is one."""
    best = best_of(job.run.checkpoints)
    metric = "move_error" if "move_error" in best else "composite"
    if metric not in best or (step := step_of(best[metric][0])) == job.num_steps:
        return []
    name = shlex.quote(f"{job.run.path}@best-{metric}")
    return [f"best checkpoint   step {step:,}, {metric} {best[metric][1]:.4f}; as a network: {name}"]


def say_how_to_continue(job: Job, request: Request, console: Console) -> None:
    """The command that continues, on each terminal; our launcher prints it itself."""
    if not checkpoints_in(job.run.checkpoints):
        console.say("there is no checkpoint yet: the same command starts from the beginning", Topic.END)
    elif not request.is_launched:
        text = f"continue with: {continuing(request.command, job.run.path.name)}"
        if not job.runtime.is_main and shows_common_errors(os.environ):
            console.alarm(text)
        console.say(text, Topic.END)
