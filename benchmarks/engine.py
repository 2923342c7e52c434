"""DeepSpeed's engine at ZeRO 0 and 1 against a plain DistributedDataParallel loop, in alternating turns."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.network.model.planes import to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.flags import Parser, batch_size, count, whole
from alphazero.settings.load import Config, load_config
from alphazero.training.engine.engine import Engine
from alphazero.training.engine.optimizer import make_optimizer
from alphazero.training.engine.probe import random_batch
from alphazero.training.engine.training_module import TrainingModule
from alphazero.training.ranks.batch import BatchPlan, plan_batches
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime
from benchmarks.measuring.clock import medians
from benchmarks.measuring.ranks import on_ranks

SPEC = get_spec("chess")
CLIP, RATE = 10.0, 1e-3
Step = Callable[[], None]


def run(arguments: list[str]) -> dict[str, object]:
    """Medians over turns. What a checkpoint costs: `alphazero bench training --checkpoint-interval N`."""
    parser = Parser(prog="alphazero bench engine", description=__doc__)
    parser.add_argument("--gpus", type=count, default=2, help="ranks; CPU ranks where there is no GPU")
    parser.add_argument("--blocks", type=whole(1, 256), default=20, help="residual blocks")
    parser.add_argument("--filters", type=whole(1, 4096), default=256, help="channels of the tower")
    parser.add_argument("--batch", type=batch_size, default=64, help="positions per step over all ranks")
    parser.add_argument("--micro-batch", type=batch_size, default=16, help="positions per pass")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--rounds", type=whole(2), default=7, help="turns of each contender")
    parser.add_argument("--steps", type=count, default=4, help="steps a turn")
    args = parser.parse_args(arguments)
    figures: dict[str, object] = on_ranks(contest, args.gpus, "auto", args)
    return figures


def contest(runtime: Runtime, exchange: Exchange, args: argparse.Namespace) -> dict[str, object]:
    """Positions/s by contender, and ratios of neighbouring turns: a slow moment hits both."""
    plan = plan_batches(args.batch, args.micro_batch, [1.0] * runtime.world_size, runtime.device.type)
    batch = random_batch(SPEC, plan.micro_batch_size)
    passes = [MicroBatch(0, index or 0, batch, index is None) for index in plan.passes_of(runtime.rank)]
    flags = {name: getattr(args, name) for name in ("blocks", "filters", "precision")}
    config, sharded = (
        load_config("", {**flags, "batch_size": args.batch, "zero_stage": stage}) for stage in range(2)
    )
    contenders = {
        "zero0": engine_step(config, runtime, plan, exchange, passes),
        "zero1": engine_step(sharded, runtime, plan, exchange, passes),
        "ddp": ddp_step(config, runtime, passes),
    }

    def speed_of(step: Step) -> float:
        exchange.barrier()
        begin = time.perf_counter()
        for _ in range(args.steps):
            step()
        if runtime.device.type == "cuda":
            torch.cuda.synchronize()
        return args.steps * plan.batch_size / (time.perf_counter() - begin)

    turns = [{name: speed_of(step) for name, step in contenders.items()} for _ in range(args.rounds + 1)]
    del turns[0]  # it was to warm up
    figures: dict[str, object] = {f"{name}_positions_per_s": speed for name, speed in medians(turns).items()}
    for name in ("zero0", "zero1"):
        low, middle, high = statistics.quantiles([turn[name] / turn["ddp"] for turn in turns], n=4)
        figures |= {f"{name}_to_ddp": middle, f"{name}_to_ddp_quartiles": f"{low:.3f}-{high:.3f}"}
    return figures


def new_network(config: Config) -> AlphaZeroNet:
    """The same for every contender."""
    return AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0))


def engine_step(
    config: Config, runtime: Runtime, plan: BatchPlan, exchange: Exchange, micro_batches: list[MicroBatch]
) -> Step:
    """A step as the trainer makes it, with all it asks the other ranks."""
    settings = DeepSpeedSettings(zero_options={"reduce_bucket_size": 50_000_000})
    config = dataclasses.replace(config, deepspeed=settings)
    engine = Engine(new_network(config), config, plan, runtime)
    passes = plan.num_micro_batches

    def step() -> None:
        for micro_batch in micro_batches:
            engine.accumulate(micro_batch, passes)
        numbers = exchange.numbers(int(engine.gradients_are_finite()))
        engine.finish_step(0, RATE, passes, [rank for rank, number in enumerate(numbers) if not number])

    return step


def ddp_step(config: Config, runtime: Runtime, micro_batches: list[MicroBatch]) -> Step:
    """The loop one would write by hand: no_sync but for the last pass, clipping, torch's AdamW."""
    device = runtime.device
    network = new_network(config).to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make_optimizer(network, config.optimizer)
    module = TrainingModule(network, config.loss, config.training)
    ddp = DistributedDataParallel(module, device_ids=[device] if device.type == "cuda" else None)

    def backward(micro_batch: MicroBatch) -> None:
        (ddp(to_device(micro_batch.batch, device)) / len(micro_batches)).backward()

    def step() -> None:
        with ddp.no_sync():
            for micro_batch in micro_batches[:-1]:
                backward(micro_batch)
        backward(micro_batches[-1])
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = RATE
        optimizer.step()
        optimizer.zero_grad()

    return step
