"""The engine against a plain DistributedDataParallel loop, and what a checkpoint costs beside training."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from alphazero.base.errors import ConfigError
from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.network.model.planes import to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.flags import Parser, batch_size, count, whole
from alphazero.settings.load import load_config
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.engine.optimizer import make_optimizer
from alphazero.training.engine.training_module import TrainingModule
from alphazero.training.ranks.batch import plan_batches
from alphazero.training.ranks.runtime import default_threads, lone_process_environment, read_runtime
from benchmarks.measuring.checkpoints import checkpoint_pause
from benchmarks.measuring.trainer_bench import Bench, wait

SPEC = get_spec("chess")
CLIP = 10.0
RATE = 1e-3
# One step of a contender.
Step = Callable[[], None]


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
    flags = {"blocks": str(args.blocks), "filters": str(args.filters), "precision": args.precision}
    config = load_config("", {**flags, "batch_size": str(args.batch)})
    exchange = start_process_group(runtime)
    plan = plan_batches(args.batch, args.micro_batch, [1.0] * args.gpus, runtime.device.type)
    bench = Bench.make(config, runtime, plan, exchange)
    try:
        figures = compare(bench, args.rounds, args.steps)
        figures |= checkpoint_pause(bench, args.checkpoint_steps, Path(directory))
        if rank == 0:
            torch.save(figures, Path(directory) / "figures")
        exchange.barrier()
    finally:
        end_process_group()


def compare(bench: Bench, rounds: int, steps: int) -> dict[str, object]:
    """Engine at ZeRO 0 and 1 and plain DDP, turn and turn about; page faults are those of this rank."""
    contenders = {"zero0": engine_step(bench, 0), "zero1": engine_step(bench, 1), "ddp": ddp_step(bench)}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    faults: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, step in contenders.items():
            bench.exchange.barrier()
            faults_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            started = time.perf_counter()
            for _ in range(steps):
                step()
            wait(bench.runtime.device)
            if turn:  # the first is to warm up
                seconds[name].append((time.perf_counter() - started) / steps)
                new_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults_before
                faults[name].append(new_faults / steps)
    figures: dict[str, object] = {}
    for name, taken in seconds.items():
        figures[f"{name}_positions_per_s"] = bench.plan.batch_size / statistics.median(taken)
        figures[f"{name}_page_faults_per_step"] = round(statistics.median(faults[name]))
    for name in ("zero0", "zero1"):
        # Neighbours in time are compared, so that a slow moment of the machine hits both.
        ratios = [ddp / own for ddp, own in zip(seconds["ddp"], seconds[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        figures |= {f"{name}_to_ddp": middle, f"{name}_to_ddp_quartiles": f"{low:.3f}-{high:.3f}"}
    return figures


def engine_step(bench: Bench, stage: int) -> Step:
    """A step as the trainer makes it, with all it asks the other ranks."""
    engine = bench.with_training(zero_stage=stage).make_engine()
    count = bench.plan.num_micro_batches

    def step() -> None:
        sums = torch.zeros(7, dtype=torch.float64, device=bench.runtime.device)
        for micro_batch in bench.micro_batches:
            sums += engine.accumulate(micro_batch, count).sums
        is_good = engine.gradients_are_finite()
        numbers = bench.exchange.numbers(int(is_good))
        engine.finish_step(0, RATE, count, [rank for rank, number in enumerate(numbers) if not number])

    return step


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
    loss = ddp(to_device(micro_batch.batch, device))
    (loss * share).backward()
    module: TrainingModule = ddp.module
    return module.last_terms.sums
