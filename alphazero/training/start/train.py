"""A run from its settings to a trained network: the stages of the start, then training to the end."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time

import torch

from alphazero.base.errors import TrainingError
from alphazero.base.log import Topic
from alphazero.base.text import counted
from alphazero.data.sampling.window import Window
from alphazero.games.outside.solvers import check_solver
from alphazero.machine.memory import keep_freed_memory
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.run.rank import Phase
from alphazero.settings.load import Config
from alphazero.show.console import Console
from alphazero.training.engine.engine import Engine, check_options, end_process_group, start_process_group
from alphazero.training.engine.graphed_network import graph_notices
from alphazero.training.engine.planner import choose_kernels, choose_plan, choose_training_kernels
from alphazero.training.loop.job import DataSource, Job, Position, RankServices, TrainingOutcome
from alphazero.training.loop.schedule import warmup_notices
from alphazero.training.loop.start_clock import StartClock
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.trainer import Trainer, Validate
from alphazero.training.ranks.runtime import Runtime, default_threads, pin_ranks, with_local_ranks
from alphazero.training.sources.arrivals import check_ways
from alphazero.training.sources.generations import Generations
from alphazero.training.sources.given_games import (
    GivenGames,
    choose_value_curve,
    find_symmetries,
    loader_threads,
    open_data,
)
from alphazero.training.sources.validation import make_validation
from alphazero.training.start.agreement import DataCheck, compare_data, compare_ranks
from alphazero.training.start.banner import banner, say_how_to_continue, summary
from alphazero.training.start.open_services import beat_of_start, open_services
from alphazero.training.start.resume_checks import (
    check_nothing_else_is_asked,
    check_same_data,
    check_same_run,
    check_self_play,
    complete,
)
from alphazero.training.start.run_start import RankContext, Request, RunStart, Setup, find_run, make_directory
from alphazero.training.start.settle import settle_settings
from alphazero.training.start.sharing import load_shared
from alphazero.training.start.stall_watch import stall_watch
from alphazero.training.start.starting_network import require_memory

# A run that diverges twice more, each time on other positions, does so again after that.
MOST_RETURNS = 2


def train(config: Config, runtime: Runtime, request: Request) -> int:
    """Train as one rank of the job; returns the process's exit status."""
    stop, clock = StopRequest(), StartClock()
    clock.ended("rank: importing PyTorch and this program")
    if runtime.device.type == "cpu":
        keep_freed_memory()
    exchange = start_process_group(runtime)
    runtime = with_local_ranks(runtime, exchange)
    torch.set_num_threads(default_threads(runtime.local_world_size))
    clock.ended("importing DeepSpeed, meeting the other ranks")
    console = Console(runtime.is_main, log_format=config.run.log_format, quiet=config.run.quiet)
    rank = RankContext(runtime, exchange, console, stop, clock)
    console.begin("preparing")
    try:
        # Before all that depends on settings: ranks with different settings would wait for each other.
        warnings = compare_ranks(config, request, rank)
        request = dataclasses.replace(request, notices=(*request.notices, *warnings))
        with find_run(config, request, rank) as start:
            clock.ended("comparing the ranks, opening the run")
            status = _train(config, request, start, rank)
    finally:
        console.close()
    # Not after a fault: NCCL would wait for ranks that wait for this one, and the fault would stay unknown.
    # The process then ends as it is (alphazero.cli.main).
    end_process_group()
    return status


def _train(config: Config, request: Request, start: RunStart, rank: RankContext) -> int:
    """The stages of a run in their order; returns the exit status."""
    started = time.monotonic()
    setup = prepare(config, request, start, rank)
    job, console = setup.job, rank.console
    exchange = rank.exchange
    reads = job.config.data.verify_data and job.runtime.local_rank == 0
    check = DataCheck((setup.window, setup.held_out), job.run, exchange, reads=reads)
    with contextlib.closing(check):
        make_directory(setup, request, rank)
        if start.resumed and start.is_complete(job):
            console.say(complete(job, start.resumed.state, request), Topic.END)
            return 0
        console.log_to(job.run.path)
        console.say(banner(setup, exchange.gather(f"{job.runtime.host} {job.runtime.device_name}")))
        outcome: TrainingOutcome | None = None
        try:
            outcome = train_to_the_end(setup, check, rank)
        finally:
            if outcome in (None, TrainingOutcome.STOPPED):
                say_how_to_continue(job, request, console)
    if outcome is TrainingOutcome.STOPPED:
        return rank.stop.exit_status(rank.exchange)
    if job.runtime.is_main:  # which prints; other hosts may have no figures
        console.say(summary(job, time.monotonic() - started, request.command), Topic.END)
    return 0


def prepare(config: Config, request: Request, start: RunStart, rank: RankContext) -> Setup:
    """Settle settings, network, precision, batch and games, and check that they can resume the run.

    Collective; nothing is written. Raises AlphaZeroError on all ranks alike.
    """
    runtime, exchange, saved = rank.runtime, rank.exchange, start.saved
    config, starting, notices = settle_settings(config, start, rank)
    exchange.on_each(lambda: check_solver(config.training.solver, config.network.game))
    exchange.on_main(lambda: check_ways(config, start.run))
    changes = check_same_run(start.run, start.resumed, config) if start.resumed else []
    exchange.on_each(lambda: check_options(config, runtime.world_size))
    require_memory(config, runtime, exchange)
    network = starting.build(start.resumed)
    with rank.console.working("timing kernels"):
        kernel_lines = choose_kernels(config, runtime.device, saved, exchange)
        kernel_lines += choose_training_kernels(config, runtime.device, saved, exchange)
    rank.start_clock.ended("settings, network, precision and kernels")
    with rank.console.working("choosing micro-batches"):
        plan, plan_changes = choose_plan(config, runtime, network, saved, exchange)
    rank.start_clock.ended("choosing micro-batches")
    with rank.console.working("reading the games") as work:
        threads, beat = loader_threads(config.data, runtime), beat_of_start(start.run, runtime)
        window, held_out = open_data(config, exchange, num_threads=threads, beat=beat, progress=work)
    rank.start_clock.ended("reading the games")
    notices += compare_data(window, held_out, config, runtime, exchange, check=request.check)
    # Not before: raw games are imported on all processors.
    notices += pin_ranks(runtime, exchange)
    job = make_job(config, runtime, start.run, window)
    notices += warmup_notices(config.optimizer, job.num_steps)
    if saved:
        changes += check_same_data(job, saved, window, accept=request.accept_new_data)
        check_self_play(start, config, exchange)
        if start.is_complete(job):
            check_nothing_else_is_asked(job, saved, changes, request)
    curve, curve_lines = choose_value_curve(config, window, exchange)
    notices += [*kernel_lines, *changes, *plan_changes, *curve_lines]
    notices += find_symmetries(config.network.game, exchange)
    notices += graph_notices(config, runtime.device)
    return Setup(
        job=job,
        start=start,
        starting=starting,
        network=network,
        plan=plan,
        window=window,
        held_out=held_out,
        curve=curve,
        notices=(*request.notices, *notices),
    )


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


def train_to_the_end(setup: Setup, data_check: DataCheck, rank: RankContext) -> TrainingOutcome:
    """Open the services of this rank and train until the last step or a signal."""
    job = setup.job
    with (
        open_services(setup, rank, data_check.finish) as services,
        stall_watch(job.run, rank.runtime, rank.console.alarm),
    ):
        validate = make_validation(job, setup.held_out, services)
        if job.config.self_play.mode == "supervised":
            assert setup.window is not None
            return train_persistently(setup, GivenGames(job, setup.window, setup.curve), validate, services)
        source, outcome = Generations(job, setup.window, services), None
        try:
            outcome = train_persistently(setup, source, validate, services)
        finally:
            source.close(ended=outcome is TrainingOutcome.FINISHED)
        return outcome


def train_persistently(
    setup: Setup, source: DataSource, validate: Validate, services: RankServices
) -> TrainingOutcome:
    """Train to the end or a signal; after too many bad steps go back to the last checkpoint and train on.

    The positions that led there are not used again (as Chowdhery et al. 2022, PaLM, section 5.1): the
    order of the data moves on by what was lost. Raises TrainingError where MOST_RETURNS do not help.
    """
    job, plan, network, resumed = setup.job, setup.plan, setup.network, setup.start.resumed
    console, bad_steps = services.console, counted(job.config.training.max_skipped_steps, "step")
    position = Position(0)
    if resumed:
        saved = resumed.state
        position = Position(saved.step, saved.data_offset, saved.skipped_steps, saved.elapsed_s)
        ranks = counted(resumed.state.world_size, "rank")
        console.say(f"resumed from step {position.step}, saved by {ranks}")
    for rollbacks in range(MOST_RETURNS + 1):
        source.restore(resumed)
        services.start_clock.ended("comparing the games, directory and services")
        engine = Engine(network, job.config, plan, job.runtime, console.alarm)
        if resumed:
            engine.load(resumed)
        last = None
        if resumed and job.runtime.is_main:  # the rank that prints
            validations = RunFigures.read(job.run, only="validation").of("validation").rows()
            last = validations[-1] if validations else None
        trainer = Trainer(job, plan, position, engine, source, validate, services, last)
        services.start_clock.ended("DeepSpeed's engine")
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
        network = setup.starting.build(resumed)
        step = resumed.state.step if resumed else 0
        offset = reached.data_offset + reached.step - step  # the data follows what was reached
        position = Position(step, offset, reached.skipped_steps, trainer.elapsed_s())
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
