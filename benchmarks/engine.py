"""The engine against a plain DistributedDataParallel loop, and what a checkpoint costs beside training."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from alphazero.cli.flags.numbers import batch_size, count, whole
from alphazero.cli.flags.parser import Parser
from alphazero.config import Config, load_config
from alphazero.errors import ConfigError
from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.host.memory import HostMemory
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.planes import to_device
from alphazero.run.console import Console
from alphazero.run.heartbeat import HeartbeatWriter
from alphazero.run.metrics import AllWriters
from alphazero.run.run_directory import RunDirectory
from alphazero.training.batch.memory_probe import random_batch
from alphazero.training.batch_plan import BatchPlan, plan_batches
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.checkpoint.writer import CheckpointWriter
from alphazero.training.engine.deepspeed_config import DeepSpeedSettings
from alphazero.training.engine.engine import (
    Engine,
    TrainingModule,
    end_process_group,
    start_process_group,
)
from alphazero.training.engine.optimizer import make_optimizer
from alphazero.training.exchange import Exchange
from alphazero.training.loop.data_source import SourceState, Weights
from alphazero.training.loop.job import Job
from alphazero.training.loop.position import Position
from alphazero.training.loop.services import RankServices
from alphazero.training.loop.stop import StopRequest
from alphazero.training.loop.trainer import Trainer
from alphazero.training.runtime import Runtime, default_threads, lone_process_environment, read_runtime

SPEC = get_spec("chess")
CLIP = 10.0
RATE = 1e-3
# One step of a contender.
Step = Callable[[], None]


@dataclass(frozen=True)
class Bench:
    """What a rank needs to build contenders."""

    config: Config
    runtime: Runtime
    plan: BatchPlan
    exchange: Exchange
    micro_batches: list[MicroBatch]


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--gpus", type=count, default=2, help="ranks; CPU ranks where there is no GPU")
    parser.add_argument("--blocks", type=whole(1, 256), default=20, help="residual blocks")
    parser.add_argument("--filters", type=whole(1, 4096), default=256, help="channels of the tower")
    parser.add_argument("--batch", type=batch_size, default=64, help="positions per step over all ranks")
    parser.add_argument("--micro-batch", type=batch_size, default=16, help="positions per pass")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--rounds", type=count, default=7, help="turns of each contender")
    parser.add_argument("--steps", type=count, default=4, help="steps a turn")
    parser.add_argument(
        "--checkpoint-steps", type=count, default=40, help="steps to measure the pause in, at least 8"
    )


def run(arguments: list[str]) -> dict[str, object]:
    """Positions/s of each contender (medians over turns, in alternation), ratios, and the pause in steps."""
    parser = Parser(prog="alphazero bench engine", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    if args.checkpoint_steps < 8:
        raise ConfigError(f"--checkpoint-steps {args.checkpoint_steps}: expected at least 8")
    environment = lone_process_environment()
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "figures"
        multiprocessing.spawn(  # type: ignore[no-untyped-call]
            measure_rank, (args, environment["MASTER_PORT"], directory), nprocs=args.gpus
        )
        figures: dict[str, object] = torch.load(answer, weights_only=True)
    return figures


def measure_rank(rank: int, args: argparse.Namespace, port: str, directory: str) -> None:
    """All measurements of one rank; rank 0 leaves the figures in `directory`."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": args.gpus, "LOCAL_WORLD_SIZE": args.gpus}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    runtime = read_runtime(os.environ)
    torch.set_num_threads(default_threads(args.gpus))
    exchange = start_process_group(runtime)
    flags = {"blocks": str(args.blocks), "filters": str(args.filters), "precision": args.precision}
    config = load_config("", {**flags, "batch_size": str(args.batch)})
    plan = plan_batches(args.batch, args.micro_batch, [1.0] * args.gpus, runtime.device.type)
    passes = plan.passes_of(rank)
    batch = random_batch(SPEC, args.micro_batch)
    micro_batches = [MicroBatch(0, index or 0, batch, index is None) for index in passes]
    bench = Bench(config, runtime, plan, exchange, micro_batches)
    try:
        figures = compare(bench, args.rounds, args.steps)
        figures |= checkpoint_pause(bench, args.checkpoint_steps, Path(directory))
        if rank == 0:
            torch.save(figures, Path(directory) / "figures")
        exchange.barrier()
    finally:
        end_process_group()


def compare(bench: Bench, rounds: int, steps: int) -> dict[str, object]:
    """Engine at ZeRO 0 and 1 and plain DDP, turn and turn about."""
    contenders = {"zero0": engine_step(bench, 0), "zero1": engine_step(bench, 1), "ddp": ddp_step(bench)}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, step in contenders.items():
            bench.exchange.barrier()
            started = time.perf_counter()
            for _ in range(steps):
                step()
            wait(bench.runtime)
            if turn:  # the first is to warm up
                seconds[name].append((time.perf_counter() - started) / steps)
    figures: dict[str, object] = {}
    for name, taken in seconds.items():
        figures[f"{name}_positions_per_s"] = bench.plan.batch_size / statistics.median(taken)
    for name in ("zero0", "zero1"):
        # Neighbours in time are compared, so that a slow moment of the machine hits both.
        ratios = [ddp / own for ddp, own in zip(seconds["ddp"], seconds[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        figures |= {f"{name}_to_ddp": middle, f"{name}_to_ddp_quartiles": f"{low:.3f}-{high:.3f}"}
    return figures


def engine_step(bench: Bench, stage: int) -> Step:
    """A step as the trainer makes it, with all it asks the other ranks."""
    engine = make_engine(bench, stage)
    count = bench.plan.num_micro_batches

    def step() -> None:
        sums = torch.zeros(7, dtype=torch.float64, device=bench.runtime.device)
        for micro_batch in bench.micro_batches:
            sums += engine.accumulate(micro_batch, count).sums
        is_bad = not engine.gradients_are_finite()
        bench.exchange.numbers(int(is_bad))
        engine.finish_step(0, RATE, count, skip=is_bad)

    return step


def make_engine(bench: Bench, stage: int) -> Engine:
    """A fresh network in an engine."""
    training = dataclasses.replace(bench.config.training, zero_stage=stage)
    config = dataclasses.replace(bench.config, training=training)
    network = AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0))
    settings = DeepSpeedSettings(zero_options={"reduce_bucket_size": 50_000_000})
    return Engine(network, SPEC, config, settings, bench.plan, bench.runtime, bench.exchange)


def ddp_step(bench: Bench) -> Step:
    """The loop one would write by hand: no_sync but for the last pass, clipping, torch's AdamW."""
    config, device = bench.config, bench.runtime.device
    network = AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0)).to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module = TrainingModule(network, SPEC, config.loss, config.training)
    optimizer = make_optimizer(network, config.optimizer)
    ids = [device] if device.type == "cuda" else None
    ddp = DistributedDataParallel(module, device_ids=ids)
    share = 1 / len(bench.micro_batches)

    def step() -> None:
        sums = torch.zeros(7, dtype=torch.float64, device=device)
        for micro_batch in bench.micro_batches[:-1]:
            with ddp.no_sync():
                sums += backward(ddp, micro_batch, share, device)
        sums += backward(ddp, bench.micro_batches[-1], share, device)
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = RATE
        optimizer.step()
        optimizer.zero_grad()

    return step


def backward(
    ddp: DistributedDataParallel, micro_batch: MicroBatch, share: float, device: torch.device
) -> torch.Tensor:
    """One pass of the DDP loop."""
    terms = ddp(to_device(micro_batch.batch, device))
    (terms.total * share).backward()
    sums: torch.Tensor = terms.sums
    return sums


class StepClock(Console):
    """Notes when each step of a trainer ends."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(is_main=False)
        self._runtime = runtime
        self.times: list[float] = []

    def advance_bar(self) -> None:
        """A step is done."""
        wait(self._runtime)
        self.times.append(time.perf_counter())


def checkpoint_pause(bench: Bench, steps: int, directory: Path) -> dict[str, object]:
    """The real trainer with three checkpoints on its way: the steps beside them against all others."""
    interval = steps // 4
    training = dataclasses.replace(
        bench.config.training, checkpoint_interval=str(interval), validation_interval=0, log_interval=steps
    )
    config = dataclasses.replace(bench.config, training=training)
    bench = dataclasses.replace(bench, config=config)
    run = RunDirectory(directory / "run")
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    clock = StepClock(bench.runtime)
    begun: list[float] = []
    ended: list[float] = []
    writer = None
    if bench.runtime.is_main:
        writer = CheckpointWriter(
            run.checkpoints,
            1,
            lambda checkpoint: begun.append(time.perf_counter()),
            lambda text: ended.append(time.perf_counter()),
        )
    job = Job(config, bench.runtime, run, steps, 10**9)
    services = RankServices(
        exchange=bench.exchange,
        console=clock,
        metrics=AllWriters([]),
        heartbeat=HeartbeatWriter(run.heartbeats, bench.runtime.rank, bench.runtime.host),
        stop=StopRequest(),
        host_memory=HostMemory(host=bench.runtime.host),
        writer=writer,
    )
    engine, source = make_engine(bench, 0), RepeatedBatches(bench, steps)
    Trainer(job, bench.plan, Position(0), engine, source, lambda network: {}, services).run()
    pauses = [number * interval - 1 for number in (1, 2, 3)]
    return pause_figures(clock.times, pauses, list(zip(begun, ended, strict=True)))


def pause_figures(
    marks: list[float], pauses: list[int], written: list[tuple[float, float]]
) -> dict[str, object]:
    """Lengths of steps in units of the median step without a checkpoint.

    marks: when each step ended. pauses: steps (from 0) after which a checkpoint was taken, which falls
    into the next step's length. written: from when to when each checkpoint was written.
    """
    lengths = [after - before for before, after in itertools.pairwise(marks)]
    beside, alone = [], []
    for index, length in enumerate(lengths[1:], start=1):  # the first is to warm up
        meets = any(marks[index] < end and begin < marks[index + 1] for begin, end in written)
        (beside if meets or index in pauses else alone).append(length)
    usual = statistics.median(alone or lengths)
    return {
        "step_s": usual,
        "checkpoint_write_s": statistics.median([end - begin for begin, end in written] or [0.0]),
        "checkpoint_pause_in_steps": statistics.median(lengths[index] for index in pauses) / usual - 1,
        "steps_with_checkpoint": len(beside),
        "steps_with_checkpoint_mean_in_steps": statistics.mean(beside) / usual,
        "steps_with_checkpoint_largest_in_steps": max(beside) / usual,
        "steps_without_mean_in_steps": statistics.mean(alone or lengths) / usual,
        "steps_without_largest_in_steps": max(alone or lengths) / usual,
    }


@dataclass(frozen=True)
class RepeatedBatches:
    """A data source with the same micro-batches in every step."""

    bench: Bench
    num_steps: int

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """There is nothing to go back to."""

    def prepare(self, step: int, weights: Weights) -> int | None:
        """All steps at once."""
        return self.num_steps

    def steps(self, plan: BatchPlan, first: int, last: int) -> Iterator[list[MicroBatch]]:
        """The rank's micro-batches, over and over."""
        for _ in range(first, last):
            yield copy.copy(self.bench.micro_batches)

    def state(self) -> SourceState:
        """No data."""
        return SourceState("")


def wait(runtime: Runtime) -> None:
    """Until the device has done all it was given."""
    if runtime.device.type == "cuda":
        torch.cuda.synchronize(runtime.device)
