"""DeepSpeed's engine at ZeRO 0 and 1 against a plain DistributedDataParallel loop, in alternating turns."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from alphazero.games.batch import MicroBatch
from alphazero.games.registry import get_spec
from alphazero.network.model.planes import to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.flags import Parser, batch_size, count, whole
from alphazero.settings.load import load_config
from alphazero.training.engine.deepspeed_config import Recipe
from alphazero.training.engine.engine import Engine, end_process_group, start_process_group
from alphazero.training.engine.optimizer import make_optimizer
from alphazero.training.engine.probe import random_batch
from alphazero.training.engine.training_module import TrainingModule
from alphazero.training.ranks.batch import BatchPlan, plan_batches
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import Runtime, default_threads, lone_process_environment, read_runtime

SPEC = get_spec("chess")
CLIP, RATE = 10.0, 1e-3


@dataclass(frozen=True)
class Contest:
    """What all contenders share: the same micro-batches of random positions in every step."""

    args: argparse.Namespace
    runtime: Runtime
    plan: BatchPlan
    exchange: Exchange
    micro_batches: list[MicroBatch]

    def engine_step(self, stage: int) -> Callable[[], None]:
        """A step as the trainer makes it, with all it asks the other ranks."""
        config = load_config("", {**flags_of(self.args), "zero_stage": stage})
        network = AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0))
        settings = DeepSpeedSettings(zero_options={"reduce_bucket_size": 50_000_000})
        recipe = Recipe(config.training, config.optimizer, config.loss, settings)
        engine = Engine(network, recipe, self.plan, self.runtime)
        passes = self.plan.num_micro_batches

        def step() -> None:
            for micro_batch in self.micro_batches:
                engine.accumulate(micro_batch, passes)
            numbers = self.exchange.numbers(int(engine.gradients_are_finite()))
            engine.finish_step(0, RATE, passes, [rank for rank, number in enumerate(numbers) if not number])

        return step

    def ddp_step(self) -> Callable[[], None]:
        """The loop one would write by hand: no_sync but for the last pass, clipping, torch's AdamW."""
        config, device = load_config("", flags_of(self.args)), self.runtime.device
        network = AlphaZeroNet(config.network, SPEC, torch.Generator().manual_seed(0)).to(device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = make_optimizer(network, config.optimizer)
        ids = [device] if device.type == "cuda" else None
        module = TrainingModule(network, config.loss, config.training)
        ddp = DistributedDataParallel(module, device_ids=ids)

        def backward(micro_batch: MicroBatch) -> None:
            (ddp(to_device(micro_batch.batch, device)) / len(self.micro_batches)).backward()

        def step() -> None:
            with ddp.no_sync():
                for micro_batch in self.micro_batches[:-1]:
                    backward(micro_batch)
            backward(self.micro_batches[-1])
            torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            for group in optimizer.param_groups:
                group["lr"] = RATE
            optimizer.step()
            optimizer.zero_grad()

        return step

    def figures(self) -> dict[str, object]:
        """Positions/s by contender, and ratios of neighbouring turns: a slow moment hits both."""
        contenders = {"zero0": self.engine_step(0), "zero1": self.engine_step(1), "ddp": self.ddp_step()}
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(self.args.rounds + 1):
            for name, step in contenders.items():
                self.exchange.barrier()
                begin = time.perf_counter()
                for _ in range(self.args.steps):
                    step()
                if self.runtime.device.type == "cuda":
                    torch.cuda.synchronize()
                if turn:  # the first is to warm up
                    seconds[name].append((time.perf_counter() - begin) / self.args.steps)
        found: dict[str, object] = {
            f"{name}_positions_per_s": self.plan.batch_size / statistics.median(taken)
            for name, taken in seconds.items()
        }
        for name in ("zero0", "zero1"):
            ratios = [ddp / own for ddp, own in zip(seconds["ddp"], seconds[name], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            found |= {f"{name}_to_ddp": middle, f"{name}_to_ddp_quartiles": f"{low:.3f}-{high:.3f}"}
        return found


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
    port = lone_process_environment()["MASTER_PORT"]
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "figures"
        multiprocessing.spawn(measure_rank, (args, port, answer), nprocs=args.gpus)  # type: ignore[no-untyped-call]
        figures: dict[str, object] = torch.load(answer, weights_only=True)
    return figures


def flags_of(args: argparse.Namespace) -> dict[str, object]:
    """Settings of the trainer."""
    names = {"blocks": args.blocks, "filters": args.filters, "precision": args.precision}
    return {**names, "batch_size": args.batch}


def measure_rank(rank: int, args: argparse.Namespace, port: str, answer: Path) -> None:
    """All measurements of one rank; rank 0 leaves the figures in `answer`."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": args.gpus, "LOCAL_WORLD_SIZE": args.gpus}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    runtime = read_runtime(os.environ)
    torch.set_num_threads(default_threads(args.gpus))
    exchange = start_process_group(runtime)
    plan = plan_batches(args.batch, args.micro_batch, [1.0] * args.gpus, runtime.device.type)
    batch = random_batch(SPEC, plan.micro_batch_size)
    passes = [MicroBatch(0, index or 0, batch, index is None) for index in plan.passes_of(rank)]
    try:
        figures = Contest(args, runtime, plan, exchange, passes).figures()
        if rank == 0:
            torch.save(figures, answer)
        exchange.barrier()
    finally:
        end_process_group()
