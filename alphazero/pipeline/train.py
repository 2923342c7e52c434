"""The composition root: from settings and the environment to a trained network in a run directory."""

from __future__ import annotations

import dataclasses
import math
import time

import torch

from alphazero.config import Config
from alphazero.data.sampling.window import Window
from alphazero.games.spec import GameSpec
from alphazero.pipeline.banner import banner, summary
from alphazero.pipeline.data_check import DataCheck
from alphazero.pipeline.generations import Generations
from alphazero.pipeline.given_games import GivenGames
from alphazero.pipeline.loading import loader_threads
from alphazero.pipeline.open_data import open_data
from alphazero.pipeline.open_services import in_service, open_services
from alphazero.pipeline.precision_choice import choose_precision
from alphazero.pipeline.resume_checks import check_same_data, check_same_run
from alphazero.pipeline.rollback import PersistentTraining
from alphazero.pipeline.run_start import Request, find_run, make_directory
from alphazero.pipeline.starting_network import build_network
from alphazero.pipeline.validation import make_validation
from alphazero.run.console import Console
from alphazero.run.run_directory import RunDirectory
from alphazero.training.batch.planner import choose_plan
from alphazero.training.engine.deepspeed_config import DeepSpeedSettings
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.exchange import Exchange
from alphazero.training.loop.data_source import DataSource
from alphazero.training.loop.device_settings import apply_device_settings
from alphazero.training.loop.job import Job
from alphazero.training.loop.position import Outcome
from alphazero.training.loop.services import RankServices
from alphazero.training.loop.stop import StopRequest
from alphazero.training.runtime import Runtime, default_threads


def train(config: Config, settings: DeepSpeedSettings, runtime: Runtime, request: Request) -> int:
    """Train as one rank of the job; returns the process's exit status."""
    stop = StopRequest()
    torch.set_num_threads(default_threads(runtime.local_world_size))
    exchange = start_process_group(runtime)
    console = Console(runtime.is_main)
    try:
        return _train(config, settings, runtime, request, exchange, console, stop)
    finally:
        console.end_bar()
        end_process_group()


def _train(
    config: Config,
    settings: DeepSpeedSettings,
    runtime: Runtime,
    request: Request,
    exchange: Exchange,
    console: Console,
    stop: StopRequest,
) -> int:
    started = time.monotonic()
    training, notices = choose_precision(config.training, settings.precisions_off, runtime.device, exchange)
    config = dataclasses.replace(config, training=training)
    start = find_run(config.run, config.preset, request, runtime.local_rank, exchange, console.alarm)
    saved = start.resumed.state if start.resumed else None
    notices += apply_device_settings(training, runtime.device)
    if saved:
        check_same_run(start.run, saved, config.network, config.optimizer, training)
    network = build_network(config.network, training.seed, start.resumed)
    plan, changes = choose_plan(config, runtime, network, settings, saved, exchange)
    window, held_out = open_data(config.data, config.self_play.mode, config.network.game, exchange)
    job = make_job(config, runtime, start.run, window)
    if saved:
        check_same_data(job.run, saved, config.self_play.mode, window)
    data_check = DataCheck.start(
        (window, held_out), job.run, exchange, reads=runtime.local_rank == 0, enabled=config.data.verify_data
    )
    make_directory(start, job, request.argv, exchange, console.alarm)
    if saved and saved.step >= job.num_steps:
        console.say(
            f"{job.run.path} is complete at step {saved.step}; expected --steps above it, or --fresh-start"
        )
        data_check.close()
        return 0
    console.log_to(job.run.log)
    notices = (*request.notices, *notices, *changes)
    devices = exchange.gather(f"{runtime.host} {runtime.device_name}")
    threads = f"{torch.get_num_threads()} compute, {loader_threads(config.data, runtime)} encode positions"
    console.say(banner(job, plan, network, window, held_out, notices, devices, threads))
    services = open_services(job, start, exchange, console, stop)
    services = dataclasses.replace(services, before_save=data_check.finish)
    with in_service(job, services), data_check:
        source = make_source(job, network.spec, window, services)
        validate = make_validation(job, held_out, network.spec, exchange)
        stretches = PersistentTraining(job, settings, source, validate, services)
        outcome = stretches.run(plan, network, start.resumed)
    if outcome is Outcome.STOPPED:
        return stop.exit_status(exchange)
    console.say(summary(job, time.monotonic() - started))
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


def make_source(job: Job, spec: GameSpec, window: Window | None, services: RankServices) -> DataSource:
    """Where the positions come from."""
    if job.config.self_play.mode != "supervised":
        return Generations(job, spec, window, services)
    assert window is not None
    return GivenGames(job, spec, window)
