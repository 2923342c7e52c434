"""The composition root: from settings and the environment to a trained network in a run directory."""

from __future__ import annotations

import dataclasses
import math
import time

import torch

from alphazero.base.log import Topic
from alphazero.data.sampling.value_curve import ValueCurve
from alphazero.data.sampling.window import Window
from alphazero.games.registry import GameSpec
from alphazero.machine.memory import keep_freed_memory
from alphazero.network.model.precision import evaluation_precision
from alphazero.run.checkpoint_files import LATEST
from alphazero.run.directory import RunDirectory
from alphazero.run.next_command import continuing
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import Config, decided, places
from alphazero.settings.scope import Kept, changed_filters, kept_settings
from alphazero.show.console import Console, ConsoleStyle
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.engine.graphed_network import graph_notices
from alphazero.training.engine.planner import choose_plan, choose_precision, saved_batch
from alphazero.training.engine.probe import seconds_per_pass
from alphazero.training.loop.job import DataSource, Job, Outcome, RankServices
from alphazero.training.loop.stop import StopRequest
from alphazero.training.ranks.batch import fix_batch
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime, apply_device_settings, default_threads
from alphazero.training.sources.generations import Generations
from alphazero.training.sources.given_games import GivenGames, choose_value_curve, loader_threads, open_data
from alphazero.training.sources.shown_texts import with_opening_shown
from alphazero.training.sources.validation import make_validation
from alphazero.training.start.agreement import DataCheck, compare_data, compare_ranks
from alphazero.training.start.banner import banner, summary
from alphazero.training.start.open_services import in_service, open_services
from alphazero.training.start.pinning import pin_ranks
from alphazero.training.start.resume_checks import (
    check_nothing_else_is_asked,
    check_same_data,
    check_same_run,
    check_self_play,
    complete,
)
from alphazero.training.start.rollback import PersistentTraining
from alphazero.training.start.run_start import Request, RunStart, find_run, keep_weights, make_directory
from alphazero.training.start.starting_network import starting_network


def train(config: Config, settings: DeepSpeedSettings, runtime: Runtime, request: Request) -> int:
    """Train as one rank of the job; returns the process's exit status."""
    stop = StopRequest()
    torch.set_num_threads(default_threads(runtime.local_world_size))
    if runtime.device.type == "cpu":
        keep_freed_memory()
    exchange = start_process_group(runtime)
    console = Console(runtime.is_main, ConsoleStyle(config.run.log_format, config.run.quiet))
    console.begin("preparing")
    try:
        # Before all that depends on settings: ranks that were told unlike things would wait for each other.
        asked = request.of_this_start()
        warnings = compare_ranks(config, settings, runtime, asked, exchange, check=request.check)
        request = dataclasses.replace(request, notices=(*request.notices, *warnings))
        local_rank, preset = runtime.local_rank, config.preset
        with find_run(config.run, preset, request, local_rank, exchange, console.alarm) as start:
            status = _train(config, settings, runtime, request, start, exchange, console, stop)
    finally:
        console.close()
    # Not after a fault: NCCL would wait for ranks that wait for this one, and the fault would never be told.
    # The process then ends as it is (alphazero.cli.main).
    end_process_group()
    return status


def _train(
    config: Config,
    settings: DeepSpeedSettings,
    runtime: Runtime,
    request: Request,
    start: RunStart,
    exchange: Exchange,
    console: Console,
    stop: StopRequest,
) -> int:
    started = time.monotonic()
    saved = start.resumed.state if start.resumed else None
    kept = kept_settings(saved.config, saved.micro_batch_size, config) if saved else Kept(config)
    config, starting, first = starting_network(kept.config, start.resumed, exchange)
    config, batch_lines = fix_batch(config, runtime.world_size, saved_batch(saved), places(settings))
    notices = [*request.notices, *kept.lines(), *first, *decided(config, settings), *batch_lines]
    notices += apply_device_settings(config.training, runtime.device)
    changes = check_same_run(start.run, saved, config) if saved else []
    network = starting.build(start.resumed)
    precision = choose_precision(
        config.training,
        settings.precisions_off,
        runtime.device,
        saved.precision if saved else "",
        lambda names: seconds_per_pass(network, config, names, runtime.world_size),
        exchange,
        keep_saved="precision" not in config.asked,
    )
    config = dataclasses.replace(config, training=precision.training)
    if config.self_play.mode != "supervised":
        asked = config.self_play.evaluation_precision
        exchange.on_each(lambda: evaluation_precision(asked, config.training.precision, runtime.device))
    with console.working("choosing micro-batches"):
        plan, plan_changes = choose_plan(config, runtime, network, settings, saved, exchange)
    with console.working("reading the games"):
        window, held_out = open_data(
            config.data,
            config.self_play.mode,
            config.network.game,
            exchange,
            seed=config.training.seed,
            num_threads=loader_threads(config.data, runtime),
        )
    notices += compare_data(window, held_out, runtime, exchange, check=request.check)
    # Not before: raw games are imported on all processors.
    notices += pin_ranks(runtime, exchange, enabled=config.training.pin_ranks)
    job = make_job(config, runtime, start.run, window)
    if saved:
        accept, mode = request.accept_new_data, config.self_play.mode
        filters = changed_filters(saved.config, config)
        changes += check_same_data(job.run, saved, mode, window, filters, accept=accept)
        check_self_play(start, config, exchange)
        if saved.step >= job.num_steps:
            check_nothing_else_is_asked(job, saved, changes, request)
    data_check = DataCheck.start(
        (window, held_out), job.run, exchange, reads=runtime.local_rank == 0, enabled=config.data.verify_data
    )
    make_directory(start, job, request.argv, exchange, console.alarm, starting.source)
    exchange.on_each(lambda: keep_weights(job, start))
    if saved and saved.step >= job.num_steps:
        console.say(complete(job, saved, request), Topic.END)
        data_check.close()
        return 0
    console.log_to(job.run.path)
    curve, curve_lines = choose_value_curve(config, window, exchange)
    devices = exchange.gather(f"{runtime.host} {runtime.device_name}")
    threads = f"{torch.get_num_threads()} compute, {loader_threads(config.data, runtime)} encode positions"
    notices += [*precision.notices, *changes, *plan_changes, *curve_lines]
    notices += graph_notices(config.training, settings.passed_on, runtime.device)
    console.say(banner(job, plan, network, window, held_out, notices, devices, threads, precision.reason))
    outcome: Outcome | None = None
    try:
        services = open_services(job, start, exchange, console, stop)
        services = dataclasses.replace(services, before_save=data_check.finish)
        with in_service(job, services), data_check:
            source = make_source(job, network.spec, window, curve, services)
            validate = make_validation(job, held_out, network.spec, exchange)
            validate = with_opening_shown(validate, job, services.metrics)
            stretches = PersistentTraining(job, settings, starting, source, validate, services)
            outcome = stretches.run(plan, network, start.resumed)
    finally:
        if outcome in (None, Outcome.STOPPED):
            say_how_to_go_on(job, request, console)
    if outcome is Outcome.STOPPED:
        return stop.exit_status(exchange)
    console.say(summary(job, time.monotonic() - started, request.command), Topic.END)
    return 0


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


def say_how_to_go_on(job: Job, request: Request, console: Console) -> None:
    """The line with which to go on from what was saved; a launcher of ours says it itself."""
    if not request.is_launched and (job.run.checkpoints / LATEST).exists():
        console.say(f"continue with: {continuing(request.command, job.run.path.name)}", Topic.END)


def make_source(
    job: Job, spec: GameSpec, window: Window | None, curve: ValueCurve | None, services: RankServices
) -> DataSource:
    """Where the positions come from."""
    if job.config.self_play.mode != "supervised":
        return Generations(job, spec, window, services)
    assert window is not None
    return GivenGames(job, spec, window, curve)
