"""Training as a job does it, on one device: steps of the trainer, and the pause of a checkpoint."""

from __future__ import annotations

import functools
import gc
import os
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.load import load_config
from alphazero.training.engine.engine import start_process_group
from alphazero.training.ranks.batch import plan_batches
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.ranks.runtime import (
    Runtime,
    apply_device_settings,
    lone_process_environment,
    read_runtime,
)
from benchmarks.measuring.checkpoints import checkpoint_pause
from benchmarks.measuring.device_load import GIB, DeviceLoad
from benchmarks.measuring.trainer_bench import Bench, StepTimes, train
from benchmarks.network import forward_flops

# Backward costs two forwards.
PASSES_IN_FORWARDS = 3


def measure(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """Positions/s of whole steps, the arithmetic in TFLOP/s, memory, and how long the device was idle."""
    bench = make_bench(settings)
    device = bench.runtime.device
    clear_memory(device)
    times = StepTimes(seconds=float(settings["seconds"]), least_steps=int(settings["least_steps"]))
    engine = bench.make_engine()
    with DeviceLoad(device) as load:
        train(bench, engine, times)
    engine.close()
    del engine
    figures = {
        **step_figures(bench, times),
        **memory_figures(device),
        **load.figures(since=times.ends[times.warm_up_steps - 1]),
    }
    clear_memory(device)
    return figures


def measure_checkpoint(settings: Mapping[str, Any]) -> Mapping[str, object]:
    """How much longer steps beside a checkpoint take."""
    bench = make_bench(settings)
    clear_memory(bench.runtime.device)
    with tempfile.TemporaryDirectory() as directory:
        return checkpoint_pause(bench, int(settings["steps"]), Path(directory))


@functools.cache
def lone_rank(device: str) -> tuple[Runtime, Exchange]:
    """This process as a job of one rank; NCCL on a GPU, gloo on the CPU."""
    os.environ.update(lone_process_environment())
    runtime = read_runtime(os.environ, device)
    return runtime, start_process_group(runtime)


def make_bench(settings: Mapping[str, Any]) -> Bench:
    """The job that the settings describe; `mode` holds settings of training by name."""
    runtime, exchange = lone_rank(settings["device"])
    precision = settings["precision"]
    flags = {
        "blocks": settings["blocks"],
        "filters": settings["filters"],
        "batch_size": settings["batch"],
        "precision": "fp32" if precision == "tf32" else precision,
        "tf32": precision == "tf32",
        "zero_stage": settings["zero_stage"],
        **settings["mode"],
    }
    config = load_config("", flags)
    apply_device_settings(config.training, runtime.device)
    plan = plan_batches(
        settings["batch"],
        settings["micro_batch"],
        [1.0],
        runtime.device.type,
        equal_passes=settings["zero_stage"] >= 2,
    )
    return Bench.make(config, runtime, plan, exchange)


def step_figures(bench: Bench, times: StepTimes) -> dict[str, object]:
    """Speed of the measured steps."""
    network = AlphaZeroNet(bench.config.network, bench.spec, torch.Generator().manual_seed(0))
    positions_per_s = bench.plan.batch_size / times.mean_s()
    flops = PASSES_IN_FORWARDS * forward_flops(network, bench.spec)
    quartiles = statistics.quantiles(times.lengths(), n=4)
    return {
        "positions_per_s": positions_per_s,
        "tflops": positions_per_s * flops / 1e12,
        "step_ms": 1000 * times.mean_s(),
        "step_ms_quartiles": [round(1000 * quartiles[0], 3), round(1000 * quartiles[2], 3)],
        "steps": len(times.lengths()),
        "first_step_s": times.first_step_s(),
        "micro_batch": bench.plan.micro_batch_size,
        "passes": bench.plan.num_micro_batches,
    }


def memory_figures(device: torch.device) -> dict[str, object]:
    """Peaks on the device since clear_memory."""
    if device.type == "cpu":
        return {}
    return {
        "peak_allocated_gib": torch.cuda.max_memory_allocated(device) / GIB,
        "peak_reserved_gib": torch.cuda.max_memory_reserved(device) / GIB,
    }


def clear_memory(device: torch.device) -> None:
    """What an earlier row held goes back, and peaks count anew."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
