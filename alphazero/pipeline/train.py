"""The composition root: from settings and the environment to a trained network in a run directory."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from alphazero.config import Config
from alphazero.data.pgn.open import open_or_import
from alphazero.data.sampling.window import Window
from alphazero.errors import AlphaZeroError, CheckpointError, ConfigError, TrainingError
from alphazero.games.registry import get_spec
from alphazero.games.spec import GameSpec
from alphazero.health.thresholds import load_thresholds
from alphazero.health.watcher import Figures, HealthWatcher
from alphazero.host.memory import HostMemory
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.precision import fast_precisions
from alphazero.network.weights.weights import Metadata, WeightsFile, weights_file_name, write_weights
from alphazero.pipeline.banner import banner, summary
from alphazero.pipeline.generations import Generations, Helpers
from alphazero.pipeline.given_games import GivenGames, loader_threads
from alphazero.pipeline.validation import make_validation
from alphazero.run.console import Console
from alphazero.run.heartbeat import HeartbeatWriter
from alphazero.run.metrics import AllWriters, open_writers
from alphazero.run.run_directory import RunDirectory, choose_run_directory, create
from alphazero.training.batch.planner import choose_plan, host_weight
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.checkpoint import files as checkpoint_files
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.checkpoint.sharing import is_writer, load_shared
from alphazero.training.checkpoint.writer import CheckpointWriter
from alphazero.training.engine.deepspeed_config import DeepSpeedSettings
from alphazero.training.engine.engine import Engine, end_process_group, start_process_group
from alphazero.training.exchange import Exchange
from alphazero.training.loop.data_source import DataSource
from alphazero.training.loop.device_settings import apply_device_settings
from alphazero.training.loop.job import Job
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.trainer import Crew, Outcome, Position, Trainer
from alphazero.training.runtime import Runtime, default_threads

EMBEDDED_GAMES = Path(__file__).resolve().parents[1] / "assets" / "games"

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What the command line asked for beside the settings.

    resume: "", "latest", "best-<metric>" or a checkpoint's path.
    """

    argv: list[str]
    resume: str = ""
    fresh_start: bool = False
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Session:
    """This process's part in the job: who it is, and how it reaches the others and the user."""

    settings: DeepSpeedSettings
    runtime: Runtime
    request: Request
    exchange: Exchange
    console: Console
    stop: StopRequest


def train(config: Config, settings: DeepSpeedSettings, runtime: Runtime, request: Request) -> int:
    """Train as one rank of the job; returns the process's exit status."""
    stop = StopRequest()
    torch.set_num_threads(default_threads(runtime.local_world_size))
    exchange = start_process_group(runtime)
    session = Session(settings, runtime, request, exchange, Console(runtime.is_main), stop)
    try:
        return _train(config, session)
    finally:
        session.console.end_bar()
        end_process_group()


def _train(config: Config, session: Session) -> int:
    started = time.monotonic()
    runtime, exchange, console = session.runtime, session.exchange, session.console
    config, notices = choose_precision(config, session)
    run, writes, resumed = find_run(config, session)
    notices += apply_device_settings(config.training, runtime.device)
    spec = get_spec(config.network.game)
    if resumed:
        check_same_run(run, resumed, config)
    network = build_network(config, spec, resumed)
    plan, changes = make_plan(config, network, spec, resumed, session)
    window, held_out = open_data(config, exchange)
    job = make_job(config, runtime, run, window)
    if resumed:
        check_same_data(resumed, job, window)
    on_every_writer(exchange, writes, lambda: start_directory(job, session, resumed))
    if resumed and resumed.state.step >= job.num_steps:
        console.say(
            f"{run.path} is complete at step {resumed.state.step}; "
            f"expected --steps above it, or --fresh-start"
        )
        return 0
    console.log_to(run.log)
    notices = (*session.request.notices, *notices, *changes)
    devices = exchange.gather(f"{runtime.host} {runtime.device_name}")
    threads = f"{torch.get_num_threads()} compute, {loader_threads(config, runtime)} encode positions"
    console.say(banner(job, plan, network, window, held_out, notices, devices, threads))
    metrics = AllWriters([])
    if runtime.is_main:
        metrics = open_writers(run, config, resumed.state.step if resumed else 0)
    writer = make_checkpoint_writer(job, console) if writes else None
    heartbeat = HeartbeatWriter(run.heartbeats, runtime.rank, runtime.host)
    helpers = Helpers(exchange, console, metrics, heartbeat, session.stop, writes)
    crew = Crew(
        make_source(job, spec, window, helpers),
        make_validation(job, held_out, spec, exchange),
        exchange,
        metrics,
        console,
        heartbeat,
        session.stop,
        writer,
        HostMemory(host=runtime.host),
    )
    watcher = make_watcher(job, metrics, console)
    try:
        if watcher:
            watcher.start()
        outcome = train_to_the_end(job, plan, network, resumed, crew, session)
    finally:
        if watcher:
            watcher.stop()
        metrics.close()
        if writer:
            writer.wait()
    if outcome is Outcome.STOPPED:
        return session.stop.exit_status(exchange)
    console.say(summary(job, time.monotonic() - started))
    return 0


def train_to_the_end(
    job: Job,
    plan: BatchPlan,
    network: AlphaZeroNet,
    resumed: Checkpoint | None,
    crew: Crew,
    session: Session,
) -> Outcome:
    """Train, and after too many bad steps go back to the last checkpoint with other positions ahead.

    The positions that led there are not used again (as Chowdhery et al. 2022, PaLM, section 5.1): the
    order of the data moves on by what was lost. Raises TrainingError after max_rollbacks such returns.
    """
    config, console = job.config, session.console
    limit, most = config.training.max_skipped_steps, config.training.max_rollbacks
    spec = get_spec(config.network.game)
    position = Position(0)
    if resumed:
        saved = resumed.state
        position = Position(saved.step, saved.data_offset, saved.skipped_steps, saved.elapsed_s)
        console.say(f"resumed from step {position.step}, saved by {resumed.state.world_size} ranks")
    for rollbacks in range(most + 1):
        crew.source.restore(resumed)
        engine = Engine(network, spec, config, session.settings, plan, session.runtime, session.exchange)
        if resumed:
            engine.load(resumed)
        trainer = Trainer(job, plan, position, engine, crew)
        outcome = trainer.run()
        if outcome is not Outcome.DIVERGED:
            return outcome
        plan, reached = trainer.plan, trainer.position
        engine.close()
        if rollbacks == most:
            break
        if crew.writer:
            crew.writer.wait()
        writes = crew.writer is not None
        resumed = load_shared(job.run.checkpoints, "", writes, session.exchange, console.alarm)
        network = build_network(config, spec, resumed)
        step = resumed.state.step if resumed else 0
        offset = reached.data_offset + reached.step - step
        position = Position(step, offset, reached.skipped_steps, trainer.elapsed_s())
        console.say(
            f"step {reached.step}: no finite gradients in {limit} steps: back to step {step} "
            f"with other positions ahead ({rollbacks + 1} of {most} times)"
        )
    raise shared(
        TrainingError(
            f"training diverges: no finite gradients in {limit} steps in a row, after {most} returns to the "
            "last checkpoint; expected a lower --learning-rate or --clip-gradients, or another --precision"
        )
    )


def choose_precision(config: Config, session: Session) -> tuple[Config, tuple[str, ...]]:
    """`auto` becomes the fastest precision of all ranks' devices that ds_config.json does not switch off."""
    if config.training.precision != "auto":
        return config, ()
    by_rank = session.exchange.gather(fast_precisions(session.runtime.device))
    common = [name for name in by_rank[0] if all(name in names for names in by_rank)]
    allowed = [name for name in common if name not in session.settings.precisions_off]
    training = dataclasses.replace(config.training, precision=allowed[0])
    notices: tuple[str, ...] = ()
    if "bf16" not in common:
        notices = (f"a device of this job has no fast bf16: training in {training.precision}",)
    return dataclasses.replace(config, training=training), notices


def find_run(config: Config, session: Session) -> tuple[RunDirectory, bool, Checkpoint | None]:
    """The run directory, whether this rank writes checkpoints there, and the checkpoint to go on from."""
    request, exchange = session.request, session.exchange
    run = main_first(exchange, lambda: choose_run_directory(config, fresh_start=request.fresh_start))
    writes = is_writer(run.checkpoints, session.runtime.local_rank, exchange)
    return run, writes, load_shared(run.checkpoints, request.resume, writes, exchange, session.console.alarm)


def start_directory(job: Job, session: Session, resumed: Checkpoint | None) -> None:
    """Make the run directory; where an older checkpoint is taken up, the newer ones step aside."""
    create(job.run, job.config, session.request.argv)
    checkpoint_files.settle(job.run.checkpoints, job.config.training.keep_checkpoints)
    if resumed:
        for path in checkpoint_files.set_aside_after(job.run.checkpoints, resumed.state.step):
            session.console.alarm(f"set aside: {path}: this run goes on from step {resumed.state.step}")


def main_first(exchange: Exchange, action: Callable[[], T]) -> T:
    """What `action` gives on rank 0, on all ranks; its AlphaZeroError is raised on all as well."""
    result: T | None = None
    fault: AlphaZeroError | None = None
    if exchange.rank == 0:
        try:
            result = action()
        except AlphaZeroError as error:
            fault = error
    result, fault = exchange.from_main((result, fault))
    if fault is not None:
        raise shared(fault)
    return result


def on_every_writer(exchange: Exchange, writes: bool, action: Callable[[], None]) -> None:
    """Do `action` on the ranks that write; the first one's AlphaZeroError is raised on all ranks."""
    fault: AlphaZeroError | None = None
    if writes:
        try:
            action()
        except AlphaZeroError as error:
            fault = error
    for found in exchange.gather(fault):
        if found is not None:
            raise shared(found)


def open_data(config: Config, exchange: Exchange) -> tuple[Window | None, Window | None]:
    """The given games to train on and those to validate on; raw files are imported once, by rank 0.

    Without games of one's own chess has embedded ones; self-play alone has none to train on.
    """
    cache, mode = Path(config.data.cache_dir), config.self_play.mode

    def open_stores(paths: Sequence[str]) -> Window:
        def imported() -> None:
            open_or_import([Path(path) for path in paths], cache)

        main_first(exchange, imported)
        return Window.of_stores(open_or_import([Path(path) for path in paths], cache))

    held_out = open_stores(config.data.validation_data) if config.data.validation_data else None
    if mode == "selfplay":
        if config.data.data:
            raise shared(
                ConfigError("--data: not with --mode selfplay; expected --mode mixed, or --validation-data")
            )
        return None, held_out
    if not config.data.data and config.network.game != "chess":
        raise shared(
            ConfigError(
                f"--mode {mode}: no games of {config.network.game}; expected --data, or --mode selfplay"
            )
        )
    window = open_stores(config.data.data or (str(EMBEDDED_GAMES),))
    if held_out is not None:
        return window, held_out
    return window.split(config.data.validation_share)


def shared(error: AlphaZeroError) -> AlphaZeroError:
    """An error that every rank finds alike: rank 0 alone shows it."""
    error.found_by_all_ranks = True
    return error


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


def make_source(job: Job, spec: GameSpec, window: Window | None, helpers: Helpers) -> DataSource:
    """Where the positions come from."""
    if job.config.self_play.mode != "supervised":
        return Generations(job, spec, window, helpers)
    assert window is not None
    return GivenGames(job, spec, window)


def check_same_run(run: RunDirectory, resumed: Checkpoint, config: Config) -> None:
    """CheckpointError where going on with these settings would be another run."""
    saved = resumed.state
    pairs = (
        ("network", saved.config["network"], dataclasses.asdict(config.network)),
        ("optimizer", saved.config["optimizer"]["optimizer"], config.optimizer.optimizer),
        ("batch size", saved.batch_size, config.training.batch_size),
        ("seed", saved.seed, config.training.seed),
    )
    for name, before, now in pairs:
        _require_same(run, saved.step, name, before, now)


def check_same_data(resumed: Checkpoint, job: Job, window: Window | None) -> None:
    """CheckpointError where the data is not what the checkpoint learned from."""
    mode = "supervised" if not resumed.state.self_play else resumed.state.config["self_play"]["mode"]
    step = resumed.state.step
    _require_same(job.run, step, "--mode", mode, job.config.self_play.mode)
    if mode == "supervised":
        assert window is not None
        _require_same(job.run, step, "data", resumed.state.window_id[:12], window.id[:12])


def _require_same(run: RunDirectory, step: int, name: str, before: object, now: object) -> None:
    if before != now:
        raise shared(
            CheckpointError(
                f"{run.path}: {name} was {before!r} at step {step}, is {now!r}; "
                "expected the same, or --fresh-start"
            )
        )


def make_plan(
    config: Config,
    network: AlphaZeroNet,
    spec: GameSpec,
    resumed: Checkpoint | None,
    session: Session,
) -> tuple[BatchPlan, tuple[str, ...]]:
    """How the batch is cut, and lines on what changes by it."""
    exchange = session.exchange
    weights = exchange.gather(host_weight(config.training, session.runtime.host, os.environ))
    saved = resumed.state if resumed else None
    size = saved.micro_batch_size if saved else 0
    plan, notices = choose_plan(
        config, session.runtime, network, spec, session.settings, size, weights, exchange
    )
    if saved and saved.micro_batch_size != plan.micro_batch_size:
        before, now = saved.micro_batch_size, plan.micro_batch_size
        notices += (f"changed arithmetic: micro-batches of {now}, were {before}",)
    if saved and saved.precision != config.training.precision:
        notices += (f"changed arithmetic: {config.training.precision}, was {saved.precision}",)
    return plan, notices


def make_watcher(job: Job, metrics: AllWriters, console: Console) -> HealthWatcher | None:
    """Watches this host and its GPUs beside training, on one rank a host; None for the other ranks.

    Figures of rank 0's host go to the metrics; faults of every host to the console.
    """
    runtime, interval_s = job.runtime, job.config.run.health_interval
    if runtime.local_rank or not interval_s:
        return None

    def report(figures: Figures) -> None:
        metrics.write_beside("health", figures)

    return HealthWatcher(
        interval_s,
        report,
        console.say if runtime.is_main else console.alarm,
        thresholds=load_thresholds(),
        directory=job.run.path,
        device=runtime.device.type,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def make_checkpoint_writer(job: Job, console: Console) -> CheckpointWriter:
    """Writes checkpoints beside training, and before each the newest weights as a file of their own."""
    network = job.config.network
    path = job.run.path / weights_file_name(network)

    def write_newest(checkpoint: Checkpoint) -> None:
        # First: a run killed between the two finds its checkpoint and makes both again.
        metadata: Metadata = {
            "step": checkpoint.state.step,
            "run": job.run.path.name,
            "averaged": checkpoint.ema is not None,
        }
        write_weights(path, WeightsFile(network, checkpoint.ema or checkpoint.weights, metadata))

    return CheckpointWriter(
        job.run.checkpoints, job.config.training.keep_checkpoints, write_newest, console.say
    )


def build_network(config: Config, spec: GameSpec, resumed: Checkpoint | None) -> AlphaZeroNet:
    """The network with its first weights, or those of the checkpoint; the same on every rank."""
    generator = torch.Generator().manual_seed(config.training.seed)
    network = AlphaZeroNet(config.network, spec, generator)
    if resumed:
        network.load_state_dict(resumed.weights)
    return network
