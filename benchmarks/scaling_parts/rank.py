"""One process of `bench scaling`, alone or of a group: an order as JSON in, figures as JSON out.

`python -m benchmarks.scaling_parts.rank ORDER RESULT`, with torchrun's variables in the environment where
it belongs to a group.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from alphazero.base.files import write_json
from alphazero.settings.load import Config, load_config
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.training.ranks.batch import plan_batches
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import (
    Runtime,
    apply_device_settings,
    lone_process_environment,
    read_runtime,
)
from benchmarks.gpu_rows.machine import measure as describe_machine
from benchmarks.measuring.trainer_bench import Bench, StepTimes, train, wait

# From what latency decides to more than the gradients of 20x256.
MESSAGE_BYTES = tuple(4 << power for power in range(8, 26, 3))
REPEATS = 5
WARM_UPS = 2
QUARTILES_OF_NORMAL = 1.349  # distance of a normal distribution's quartiles in standard deviations

Order = Mapping[str, Any]


def main() -> None:
    """Do what the order says, leave the figures in the result."""
    order_path, result_path = map(Path, sys.argv[1:])
    order: Order = json.loads(order_path.read_text(encoding="utf-8"))
    is_alone = order["what"] == "alone"
    if is_alone:
        os.environ.update(lone_process_environment())
    torch.set_num_threads(order["threads"])
    runtime = read_runtime(os.environ, order["device"])
    exchange = start_process_group(runtime)
    write_json(result_path, (alone if is_alone else together)(order, runtime, exchange))
    exchange.barrier()
    end_process_group()
    os._exit(0)  # as alphazero.cli.main.end_process


def alone(order: Order, runtime: Runtime, exchange: Exchange) -> dict[str, Any]:
    """Steps by positions of a job of one rank, whose every step is waited for."""
    steps = []
    for positions in order["sizes"]:
        times = step_times(order, runtime, exchange, positions)
        lengths = times.lengths()
        steps.append(
            {
                "positions": positions,
                "seconds": statistics.median(lengths),
                "spread": spread(lengths),
            }
        )
    return {"machine": describe_machine({"device": order["device"]}), "steps": steps}


def together(order: Order, runtime: Runtime, exchange: Exchange) -> dict[str, Any]:
    """What the ranks of a group exchange, by size, and whole steps."""
    device = runtime.device
    all_reduce = []
    for num_bytes in (*MESSAGE_BYTES, order["gradient_bytes"]):
        tensor = torch.zeros(num_bytes // 4, device=device)
        all_reduce.append((num_bytes, median_s(partial(dist.all_reduce, tensor), device)))
    message_s = median_s(lambda: exchange.numbers(0), device)
    steps: list[tuple[int, float]] = []
    for batch in order["batches"]:
        times = step_times(order, runtime, exchange, batch // runtime.world_size)
        steps.append((batch, statistics.median(times.lengths())))
    return {"all_reduce": all_reduce, "message_s": message_s, "steps": steps}


def step_times(order: Order, runtime: Runtime, exchange: Exchange, positions: int) -> StepTimes:
    """Steps of the trainer with so many positions on each rank, each waited for."""
    world_size = runtime.world_size
    micro_batch = min(positions, order["micro_batch"])
    config = job_config(order, positions * world_size)
    apply_device_settings(config.training, runtime.device)
    plan = plan_batches(positions * world_size, micro_batch, [1.0] * world_size, runtime.device.type)
    bench = Bench.make(config, runtime, plan, exchange)
    engine = bench.make_engine()
    # Counted, not timed: the ranks end in the same step.
    times = StepTimes(warm_up_steps=2, least_steps=order["steps"], waits_each_step=True)
    train(bench, engine, times)
    engine.close()
    return times


def spread(lengths: list[float]) -> float:
    """The standard deviation as a share of the median, from the quartiles: one odd step does not make it."""
    low, middle, high = statistics.quantiles(lengths, n=4)
    return (high - low) / QUARTILES_OF_NORMAL / middle


def job_config(order: Order, batch: int) -> Config:
    """The job's settings."""
    names = ("blocks", "filters", "precision")
    return load_config("", {**{name: order[name] for name in names}, "batch_size": batch})


def median_s(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of what all ranks do together."""
    times = []
    for _ in range(WARM_UPS + REPEATS):
        wait(device)
        begun = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[WARM_UPS:])


if __name__ == "__main__":
    main()
