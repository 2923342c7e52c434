"""A run from its settings to a trained network: the stages of the start, then training to the end."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from dataclasses import dataclass

import torch

from alphazero.base.log import Topic
from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Window
from alphazero.machine.memory import keep_freed_memory
from alphazero.network.model.precision import evaluation_precision
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.checkpoint import TrainingState
from alphazero.run.checkpoint_files import LATEST
from alphazero.run.directory import RunDirectory
from alphazero.run.next_command import continuing
from alphazero.run.rank import shows_common_errors
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config, decided, places
from alphazero.settings.scope import Kept, changed_filters, kept_settings
from alphazero.settings.self_play import as_begun, settled
from alphazero.show.console import Console
from alphazero.training.engine.deepspeed_config import Recipe
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.engine.graphed_network import graph_notices
from alphazero.training.engine.planner import (
    PrecisionChoice,
    choose_kernels,
    choose_plan,
    choose_precision,
    saved_batch,
)
from alphazero.training.engine.probe import seconds_per_pass
from alphazero.training.loop.job import DataSource, Job, TrainingOutcome
from alphazero.training.loop.schedule import warmup_notices
from alphazero.training.loop.stop import StopRequest
from alphazero.training.ranks.batch import BatchPlan, fix_batch
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import (
    Runtime,
    apply_device_settings,
    default_threads,
    pin_ranks,
    with_local_ranks,
)
from alphazero.training.sources.generations import Generations
from alphazero.training.sources.given_games import GivenGames, choose_value_curve, loader_threads, open_data
from alphazero.training.sources.shown_texts import with_opening_shown
from alphazero.training.sources.validation import make_validation
from alphazero.training.start.agreement import DataCheck, compare_data, compare_ranks
from alphazero.training.start.banner import banner, summary
from alphazero.training.start.open_services import beat_of_start, in_service, open_services
from alphazero.training.start.resume_checks import (
    check_nothing_else_is_asked,
    check_same_data,
    check_same_run,
    check_self_play,
    complete,
)
from alphazero.training.start.rollback import PersistentTraining
from alphazero.training.start.run_start import Request, RunStart, find_run, keep_weights, make_directory
from alphazero.training.start.stall_watch import StallWatch
from alphazero.training.start.starting_network import StartingNetwork, starting_network


@dataclass(frozen=True)
class Rank:
    """This process, and what it has before its run is opened."""

    runtime: Runtime
    exchange: Exchange
    console: Console
    stop: StopRequest


@dataclass(frozen=True)
class Found:
    """All that a start finds out before it writes anything, the same on every rank.

    starting: builds the network again after a rollback. curve: of the evaluations in given games.
    precision_reason: why `auto` became this precision. notices: lines for the banner.
    """

    job: Job
    start: RunStart
    recipe: Recipe
    starting: StartingNetwork
    network: AlphaZeroNet
    plan: BatchPlan
    window: Window | None
    held_out: Window | None
    curve: ValueCurve | None
    precision_reason: str
    notices: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """True where the checkpoint is of the last step."""
        return self.start.resumed is not None and self.start.step >= self.job.num_steps


def train(config: Config, settings: DeepSpeedSettings, runtime: Runtime, request: Request) -> int:
    """Train as one rank of the job; returns the process's exit status."""
    stop = StopRequest()
    if runtime.device.type == "cpu":
        keep_freed_memory()
    exchange = start_process_group(runtime)
    runtime = with_local_ranks(runtime, exchange)
    torch.set_num_threads(default_threads(runtime.local_world_size))
    console = Console(runtime.is_main, log_format=config.run.log_format, quiet=config.run.quiet)
    rank = Rank(runtime, exchange, console, stop)
    console.begin("preparing")
    try:
        # Before all that depends on settings: ranks with different settings would wait for each other.
        asked = request.of_this_start()
        warnings = compare_ranks(config, settings, runtime, asked, exchange, check=request.check)
        request = dataclasses.replace(request, notices=(*request.notices, *warnings))
        local_rank, preset = runtime.local_rank, config.preset
        with find_run(config.run, preset, request, local_rank, exchange, console.alarm) as start:
            status = _train(config, settings, request, start, rank)
    finally:
        console.close()
    # Not after a fault: NCCL would wait for ranks that wait for this one, and the fault would stay unknown.
    # The process then ends as it is (alphazero.cli.main).
    end_process_group()
    return status


def _train(config: Config, settings: DeepSpeedSettings, request: Request, start: RunStart, rank: Rank) -> int:
    """The stages of a run in their order; returns the exit status."""
    started = time.monotonic()
    found = prepare(config, settings, request, start, rank)
    job, console = found.job, rank.console
    with start_data_check(found, rank) as data_check:
        write_directory(found, request, rank)
        if start.resumed and found.is_complete:
            console.say(complete(job, start.resumed.state, request), Topic.END)
            return 0
        console.log_to(job.run.path)
        show_banner(found, rank)
        outcome: TrainingOutcome | None = None
        try:
            outcome = train_to_the_end(found, data_check, rank)
        finally:
            if outcome in (None, TrainingOutcome.STOPPED):
                say_how_to_continue(job, request, console)
    if outcome is TrainingOutcome.STOPPED:
        return rank.stop.exit_status(rank.exchange)
    console.say(summary(job, time.monotonic() - started, request.command), Topic.END)
    return 0


def prepare(
    config: Config, settings: DeepSpeedSettings, request: Request, start: RunStart, rank: Rank
) -> Found:
    """Settle settings, network, precision, batch and games, and check that they can resume the run.

    Collective; nothing is written. Raises AlphaZeroError on all ranks alike.
    """
    runtime, exchange, saved = rank.runtime, rank.exchange, start.saved
    config, starting, notices = settle_settings(config, settings, start, rank)
    changes = check_same_run(start.run, saved, config) if saved else []
    network = starting.build(start.resumed)
    precision = settle_precision(config, settings, network, start, rank)
    config = dataclasses.replace(config, training=precision.training)
    kernel_lines = settle_kernels(config, saved, rank)
    recipe = Recipe(config.training, config.optimizer, config.loss, settings)
    with rank.console.working("choosing micro-batches"):
        plan, plan_changes = choose_plan(recipe, runtime, network, saved, exchange)
    with rank.console.working("reading the games"):
        window, held_out = open_data(
            config.data,
            config.self_play.mode,
            config.network.game,
            exchange,
            seed=config.training.seed,
            num_threads=loader_threads(config.data, runtime),
            beat=beat_of_start(start.run, runtime),
        )
    notices += compare_data(window, held_out, runtime, exchange, check=request.check)
    # Not before: raw games are imported on all processors.
    notices += pin_ranks(runtime, exchange)
    job = make_job(config, runtime, start.run, window)
    notices += warmup_notices(config.optimizer, job.num_steps)
    if saved:
        accept, mode = request.accept_new_data, config.self_play.mode
        filters = changed_filters(saved.config, config)
        changes += check_same_data(job.run, saved, mode, window, filters, accept=accept)
        check_self_play(start, config, exchange)
        if saved.step >= job.num_steps:
            check_nothing_else_is_asked(job, saved, changes, request)
    curve, curve_lines = choose_value_curve(config.data, config.self_play.mode, window, exchange)
    graph_lines = graph_notices(config.training, settings.passed_on, runtime.device)
    notices += [*precision.notices, *kernel_lines, *changes, *plan_changes, *curve_lines, *graph_lines]
    return Found(
        job=job,
        start=start,
        recipe=recipe,
        starting=starting,
        network=network,
        plan=plan,
        window=window,
        held_out=held_out,
        curve=curve,
        precision_reason=precision.reason,
        notices=(*request.notices, *notices),
    )


def settle_settings(
    config: Config, settings: DeepSpeedSettings, start: RunStart, rank: Rank
) -> tuple[Config, StartingNetwork, list[str]]:
    """The settings of this start with those of the checkpoint and the shape of --init-weights; and lines."""
    saved = start.saved
    if saved:
        config = dataclasses.replace(
            config, self_play=as_begun(config.self_play, saved.config.get("self_play", {}))
        )
    kept = kept_settings(saved.config, saved.micro_batch_size, config) if saved else Kept(config)
    config = kept.config
    starting, lines = starting_network(
        config.network, config.training, config.asked, start.resumed, rank.exchange
    )
    config = dataclasses.replace(config, network=starting.config)
    config, batch_lines = fix_batch(config, rank.runtime.world_size, saved_batch(saved), places(settings))
    if not saved and config.self_play.mode != "supervised":
        num_ranks, batch_size = rank.runtime.world_size, config.training.batch_size
        config = dataclasses.replace(
            config, self_play=settled(config.self_play, config.search, batch_size, num_ranks)
        )
    device_lines = apply_device_settings(config.training, rank.runtime.device)
    return config, starting, [*kept.lines(), *lines, *decided(config, settings), *batch_lines, *device_lines]


def settle_precision(
    config: Config, settings: DeepSpeedSettings, network: AlphaZeroNet, start: RunStart, rank: Rank
) -> PrecisionChoice:
    """A precision in place of `auto`, and a check that self-play can evaluate in its own."""
    device, world_size = rank.runtime.device, rank.runtime.world_size
    recipe = Recipe(config.training, config.optimizer, config.loss, settings)
    precision = choose_precision(
        config.training,
        settings.precisions_off,
        device,
        start.saved.precision if start.saved else "",
        lambda names: seconds_per_pass(network, recipe, names, world_size),
        rank.exchange,
        keep_saved="precision" not in config.asked,
    )
    if config.self_play.mode != "supervised":
        asked = config.self_play.evaluation_precision
        rank.exchange.on_each(
            lambda: evaluation_precision(asked, precision.training.precision, device, config.network.body)
        )
    return precision


def settle_kernels(config: Config, saved: TrainingState | None, rank: Rank) -> list[str]:
    """Kernels for the evaluations of self-play; lines for the banner."""
    games, device = config.self_play, rank.runtime.device
    if games.mode == "supervised":
        return []
    precision = evaluation_precision(
        games.evaluation_precision, config.training.precision, device, config.network.body
    )
    return choose_kernels(config.network, precision, games.evaluation_batch, device, saved, rank.exchange)


def make_job(config: Config, runtime: Runtime, run: RunDirectory, window: Window | None) -> Job:
    """The job with its length: --steps, else all generations, else as many steps as the epochs hold."""
    training, games = config.training, config.self_play
    steps = training.steps
    if games.mode != "supervised":
        steps = steps or games.pretraining_steps + games.generations * games.steps_per_generation
        return Job(config, runtime, run, steps, 0)
    assert window is not None
    steps = steps or max(1, math.ceil(training.epochs * window.num_samples / training.batch_size))
    return Job(config, runtime, run, steps, window.num_samples)


def start_data_check(found: Found, rank: Rank) -> DataCheck:
    """Begin to verify the games that this run reads, on one rank per host."""
    job, windows = found.job, (found.window, found.held_out)
    reads, enabled = job.runtime.local_rank == 0, job.config.data.verify_data
    return DataCheck.start(windows, job.run, rank.exchange, reads=reads, enabled=enabled)


def write_directory(found: Found, request: Request, rank: Rank) -> None:
    """Make the run directory, with this start's settings and the checkpoint's weights. Collective.

    Of a complete run only weights files that are missing are made again.
    """
    start, job = found.start, found.job
    make_directory(
        start,
        job,
        request.argv,
        rank.exchange,
        rank.console.alarm,
        found.starting.source,
        is_complete=found.is_complete,
    )
    rank.exchange.on_each(lambda: keep_weights(job, start))


def show_banner(found: Found, rank: Rank) -> None:
    """Print what is about to be trained, where and on which games. Collective."""
    job = found.job
    devices = rank.exchange.gather(f"{job.runtime.host} {job.runtime.device_name}")
    encoders = loader_threads(job.config.data, job.runtime)
    threads = f"{torch.get_num_threads()} compute, {encoders} encode positions"
    text = banner(
        job,
        found.plan,
        found.network,
        found.window,
        found.held_out,
        found.notices,
        devices,
        threads,
        found.precision_reason,
    )
    rank.console.say(text)


def train_to_the_end(found: Found, data_check: DataCheck, rank: Rank) -> TrainingOutcome:
    """Open the services of this rank and train until the last step or a signal."""
    job, spec = found.job, found.network.spec
    services = open_services(job, found.start, rank.exchange, rank.console, rank.stop, data_check.finish)
    with in_service(job, services), StallWatch(job.run, rank.runtime, rank.console.alarm):
        source: DataSource
        if job.config.self_play.mode == "supervised":
            assert found.window is not None
            source = GivenGames(job, spec, found.window, found.curve)
        else:
            source = Generations(job, spec, found.window, services)
        validate = make_validation(job, found.held_out, spec, rank.exchange)
        validate = with_opening_shown(validate, job, services.metrics)
        training = PersistentTraining(job, found.recipe, found.starting, source, validate, services)
        return training.run(found.plan, found.network, found.start.resumed)


def say_how_to_continue(job: Job, request: Request, console: Console) -> None:
    """The command that continues, on each terminal; our launcher prints it itself."""
    if not (job.run.checkpoints / LATEST).exists():
        console.say("there is no checkpoint yet: the same command starts from the beginning", Topic.END)
    elif not request.is_launched:
        text = f"continue with: {continuing(request.command, job.run.path.name)}"
        if not job.runtime.is_main and shows_common_errors(os.environ):
            console.alarm(text)
        console.say(text, Topic.END)
