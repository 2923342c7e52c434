"""The composition root: from settings and the environment to a trained network in a run directory."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from alphazero.banner import banner, summary
from alphazero.config import Config
from alphazero.console import Console
from alphazero.data.loader import Loader, WindowEncoder, spread_sample_ids
from alphazero.data.raw_data import open_or_import
from alphazero.data.sampler import Window
from alphazero.errors import AlphaZeroError, CheckpointError
from alphazero.evaluation.position_eval import metrics_of, sum_over_positions
from alphazero.games.registry import get_spec
from alphazero.games.spec import GameSpec
from alphazero.heartbeat import HeartbeatWriter
from alphazero.metrics import AllWriters, open_writers
from alphazero.network.loss import SUM_NAMES
from alphazero.network.resnet import AlphaZeroNet
from alphazero.run_directory import RunDirectory, choose_run_directory, create
from alphazero.runtime import Runtime, default_threads
from alphazero.training import checkpoint as checkpoints
from alphazero.training.batch_plan import plan_batches
from alphazero.training.checkpoint import Checkpoint
from alphazero.training.deepspeed_config import DeepSpeedSettings
from alphazero.training.deepspeed_engine import Engine, end_process_group, start_process_group
from alphazero.training.exchange import Exchange
from alphazero.training.stop import StopRequest
from alphazero.training.trainer import Job, Trainer, Validate

EMBEDDED_GAMES = Path(__file__).resolve().parent / "assets" / "games"
VALIDATION_BATCH_SIZE = 512

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """What the command line asked for beside the settings."""

    argv: list[str]
    resume: str = ""  # "", "latest" or a checkpoint's path
    fresh_start: bool = False
    notices: tuple[str, ...] = ()


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
    run, resumed = find_run(config, request, exchange, console)
    plan = plan_batches(
        config.training.batch_size,
        config.training.micro_batch_size or (resumed.state.micro_batch_size if resumed else 0),
        runtime.world_size,
        runtime.device.type,
    )
    window, held_out = open_data(config, exchange, console)
    job = Job(config, runtime, run, plan, count_steps(config, window), window.num_samples, window.id)
    first_step = resumed.state.step if resumed else 0
    if resumed:
        check_resumable(resumed, job, console)
    if first_step >= job.num_steps:
        console.say(f"{run.path} is complete at step {first_step}; wanted --steps above it, or --fresh-start")
        return 0
    main_first(exchange, lambda: create(run, config, request.argv))
    console.log_to(run.log)
    spec = get_spec(config.network.game)
    network = build_network(config, spec, resumed)
    console.say(banner(job, network, window, held_out, request.notices, exchange.gather(runtime)))
    engine = Engine(network, spec, config, settings, plan, runtime, exchange)
    if resumed:
        engine.state.load_optimizer_state(resumed.optimizer)
        console.say(f"resumed from step {first_step}, saved by {resumed.state.world_size} ranks")
    writer = open_writers(run, config, first_step) if runtime.is_main else AllWriters([])
    trainer = Trainer(
        job,
        engine,
        make_loader(job, window, spec).iterate,
        make_validation(job, held_out, spec, exchange),
        exchange,
        writer,
        console,
        HeartbeatWriter(run.heartbeats, runtime.rank, runtime.host),
        stop,
    )
    finished = trainer.run(first_step)
    writer.close()
    if finished:
        console.say(summary(job, time.monotonic() - started))
    return 0 if finished else stop.exit_status(exchange)


def find_run(
    config: Config, request: Request, exchange: Exchange, console: Console
) -> tuple[RunDirectory, Checkpoint | None]:
    """The run directory, and the checkpoint to go on from if there is one."""
    run = main_first(exchange, lambda: choose_run_directory(config, fresh_start=request.fresh_start))
    found = main_first(exchange, lambda: find_checkpoint(run, request.resume, console))
    return run, checkpoints.load(found) if found else None


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
        fault.found_by_all_ranks = True
        raise fault
    return result


def find_checkpoint(run: RunDirectory, resume: str, console: Console) -> Path | None:
    """The checkpoint to go on from; raises CheckpointError where one was asked for and none is there."""
    if resume and resume != "latest":
        checkpoints.verify(Path(resume))
        return Path(resume)
    newest = checkpoints.find_newest(run.checkpoints, console.say)
    if newest is None and resume:
        raise CheckpointError(f"--resume latest: {run.checkpoints} holds no complete checkpoint")
    return newest


def open_data(config: Config, exchange: Exchange, console: Console) -> tuple[Window, Window]:
    """The training and the validation window; raw files are imported once, by rank 0."""
    cache = Path(config.data.cache_dir)

    def open_stores(paths: Sequence[str]) -> Window:
        def imported() -> None:
            open_or_import([Path(path) for path in paths], cache)

        main_first(exchange, imported)
        return Window.of_stores(open_or_import([Path(path) for path in paths], cache))

    window = open_stores(config.data.data or (str(EMBEDDED_GAMES),))
    if config.data.validation_data:
        return window, open_stores(config.data.validation_data)
    return window.split(config.data.validation_share)


def count_steps(config: Config, window: Window) -> int:
    """--steps, or as many as the epochs hold, the last one whole."""
    if config.training.steps:
        return config.training.steps
    return max(1, math.ceil(config.training.epochs * window.num_samples / config.training.batch_size))


def check_resumable(resumed: Checkpoint, job: Job, console: Console) -> None:
    """CheckpointError where going on would be another run; a line where the arithmetic changes."""
    saved, config = resumed.state, job.config
    pairs = (
        ("network", saved.config["network"], dataclasses.asdict(config.network)),
        ("optimizer", saved.config["optimizer"]["optimizer"], config.optimizer.optimizer),
        ("batch size", saved.batch_size, job.plan.batch_size),
        ("seed", saved.seed, config.training.seed),
        ("data", saved.window_id[:12], job.window_id[:12]),
    )
    for name, before, now in pairs:
        if before != now:
            error = CheckpointError(
                f"{job.run.path}: {name} was {before!r} at step {saved.step}, is {now!r}; "
                f"wanted the same, or --fresh-start"
            )
            error.found_by_all_ranks = True
            raise error
    if saved.micro_batch_size != job.plan.micro_batch_size:
        console.say(
            f"changed arithmetic: micro-batches of {job.plan.micro_batch_size}, were {saved.micro_batch_size}"
        )


def build_network(config: Config, spec: GameSpec, resumed: Checkpoint | None) -> AlphaZeroNet:
    """The network with its first weights, or those of the checkpoint; the same on every rank."""
    generator = torch.Generator().manual_seed(config.training.seed)
    network = AlphaZeroNet(config.network, spec, generator)
    if resumed:
        network.load_state_dict(resumed.weights)
    return network


def loader_threads(config: Config, runtime: Runtime) -> int:
    """Threads that encode positions: as asked, else one a rank on a CPU, a share of the cores on a GPU."""
    if config.data.num_workers >= 0:
        return max(1, config.data.num_workers)
    if runtime.device.type == "cpu":
        return 1
    return max(1, min(8, default_threads(runtime.local_world_size) // 2))


def make_loader(job: Job, window: Window, spec: GameSpec) -> Loader:
    """The micro-batches of this rank."""
    return Loader(
        window,
        spec,
        seed=job.config.training.seed,
        batch_size=job.plan.batch_size,
        micro_batch_size=job.plan.micro_batch_size,
        rank=job.runtime.rank,
        world_size=job.runtime.world_size,
        num_threads=loader_threads(job.config, job.runtime),
        history_fill=job.config.data.history_fill,
    )


def make_validation(job: Job, held_out: Window, spec: GameSpec, exchange: Exchange) -> Validate:
    """A function that measures a network on a fixed set of held-out positions, shared over the ranks."""
    config, runtime = job.config, job.runtime
    ids = spread_sample_ids(held_out, config.training.validation_positions)
    if not len(ids):
        return lambda network: {}
    encoder = WindowEncoder(
        held_out, spec, num_threads=loader_threads(config, runtime), fill=config.data.history_fill
    )
    starts = range(0, len(ids), VALIDATION_BATCH_SIZE)
    chunks = [ids[start : start + VALIDATION_BATCH_SIZE] for start in starts]
    passes = -(-len(chunks) // exchange.world_size)

    def validate(network: AlphaZeroNet) -> Mapping[str, float]:
        total = torch.zeros(len(SUM_NAMES), dtype=torch.float64)
        # ZeRO 3 gathers weights in every forward pass: all ranks make as many, surplus ones uncounted.
        for turn in range(passes):
            index = turn * exchange.world_size + exchange.rank
            chunk = encoder.encode(chunks[index if index < len(chunks) else 0])
            sums = sum_over_positions(network, [chunk], runtime.device, config.training.precision)
            if index < len(chunks):
                total += sums
        return dataclasses.asdict(metrics_of(exchange.sum(total)))

    return validate
