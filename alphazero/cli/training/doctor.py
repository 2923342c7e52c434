"""`alphazero doctor`: the environment for a bug report, health, and what the presets cost on this machine."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from alphazero.base.log import duration
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_device_flag, add_number
from alphazero.machine.environment import environment
from alphazero.machine.health import HealthReport, check_this_host, to_json, to_table
from alphazero.machine.judge import exit_status
from alphazero.settings.flags import whole
from alphazero.settings.load import load_config, preset_names

FORMAT, VERSION = "alphazero-doctor", 4
MOST_RANKS = 4096
MILLION = 1_000_000
# Of the memory, what weights, gradients and optimizer state may take beside activations and libraries.
MEMORY_SHARE = 0.8
# Operations a second of bf16 and fp16 products, without sparsity, by what NVML's names begin with (NVIDIA's
# data sheets).
GPU_PEAKS = {
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100": 312e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L4": 121e12,
}
PRODUCT_SIZE, PRODUCT_S = 1024, 0.3  # of the fp32 product that is a CPU's peak, and how long it is measured
# Shares of the peak that were recorded in training and in the evaluations of self-play: of chess 20x256 in
# bf16 on one H100 (docs/performance.md); of chess_cpu, connect4 and othello on two ranks of a busy CPU.
RECORDED_SHARES = {"cuda": (0.34, 0.63), "cpu": (1.0, 0.12)}


def configure(parser: argparse.ArgumentParser) -> None:
    """What to look at, and for how many ranks."""
    parser.epilog = "Exit status: 0, or 2 where this machine is not fit for training (alphazero health)."
    parser.add_argument("--quick", action="store_true", help="environment and health alone, without torch")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/doctor.md has its keys)")
    parser.add_argument(
        "--presets", nargs="+", choices=preset_names(), default=preset_names(), help="which (default: all)"
    )
    add_number(parser, "--gpus", whole(0, MOST_RANKS), "ranks (default: one per GPU, or one on a CPU)", 0)
    add_device_flag(parser, "where to compute")
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="where runs are written (default: runs)"
    )


def run(args: argparse.Namespace) -> int:
    """Look, compute, print."""
    report = check_this_host(args.runs_dir, args.device)
    here, costs = environment(), []
    if not args.quick:
        computer = computer_of(report, args.gpus)
        costs = [preset_cost(preset, computer) for preset in dict.fromkeys(args.presets)]
    if args.json:
        page = {"format": FORMAT, "version": VERSION, "environment": here, "health": to_json(report)}
        print(json.dumps({**page, "presets": [asdict(cost) for cost in costs]}, indent=1))
    else:
        lines = table([(name, _in_words(value)) for name, value in here.items()])
        lines += ["", to_table(report)]
        lines += ["", *cost_lines(costs, computer)] if costs else []
        print("\n".join(lines))
    return exit_status(report.findings, strict=False)


@dataclass(frozen=True)
class Computer:
    """What trains: ranks on GPUs ("cuda") or on the processor ("cpu").

    memory_bytes: of one GPU, or of the host, which its CPU ranks share; 0 where it is not known.
    peak: operations a second of all ranks; 0 where it is not known.
    """

    device: str
    ranks: int
    memory_bytes: int
    peak: float


def computer_of(report: HealthReport, ranks: int) -> Computer:
    """This machine. ranks: 0 for one per GPU, or one on a CPU."""
    gpus = report.gpus
    if not gpus:
        return Computer("cpu", ranks or 1, report.machine.memory_available, cpu_peak())
    ranks = ranks or len(gpus)
    memory_bytes = min(gpu.memory_total_bytes or 0 for gpu in gpus)
    peak = min(0.0 if gpu.mig_enabled else gpu_peak(gpu.name) for gpu in gpus)
    return Computer("cuda", ranks, memory_bytes, ranks * peak)


def gpu_peak(name: str) -> float:
    """Operations a second of a GPU in bf16; 0 where they are not known."""
    return next((peak for known, peak in GPU_PEAKS.items() if name.startswith(known)), 0.0)


def cpu_peak() -> float:
    """Operations a second of a square fp32 product on all cores, the fastest that was seen."""
    import torch

    chance = torch.Generator().manual_seed(1)
    left, right = (torch.randn(PRODUCT_SIZE, PRODUCT_SIZE, generator=chance) for _ in range(2))
    shortest, end = float("inf"), time.perf_counter() + PRODUCT_S
    while (began := time.perf_counter()) < end:
        torch.mm(left, right)
        shortest = min(shortest, time.perf_counter() - began)
    return 2 * PRODUCT_SIZE**3 / shortest


@dataclass(frozen=True)
class PresetCost:
    """What a preset costs, by arithmetic.

    flop: operations of a position's forward pass. fits: whether the memory here holds weights, gradients and
    optimizer state at the preset's ZeRO stage, None where it is not known. trains, plays: positions a second
    at the recorded shares of the peak. hours: for a million positions, games included where the preset plays
    them itself. actors: how many of the ranks' devices should play where games come from them, for the most
    steps. The four are None where the peak is not known.
    """

    preset: str
    game: str
    network: str
    parameters: int
    flop: int
    fits: bool | None
    trains: float | None = None
    plays: float | None = None
    hours: float | None = None
    actors: int | None = None


def preset_cost(preset: str, computer: Computer) -> PresetCost:
    """The cost of a preset whose training and games are shared out over the ranks of `computer`."""
    from alphazero.network.model.sizes import PASSES_OF_STEP, forward_flops, on_meta_device, rank_bytes
    from alphazero.training.engine.deepspeed_config import deepspeed_stage
    from alphazero.training.engine.optimizer import state_numbers

    config = load_config(preset, {})
    network, flop = on_meta_device(config.network), forward_flops(config.network)
    moments = state_numbers(network, config.optimizer.optimizer)
    needed = rank_bytes(network, moments, deepspeed_stage(config), computer.ranks)
    needed *= 1 if computer.device == "cuda" else computer.ranks
    cost = PresetCost(
        preset=preset,
        game=config.network.game,
        network=f"{config.network.blocks}x{config.network.filters}",
        parameters=network.parameter_count(),
        flop=flop,
        fits=needed <= MEMORY_SHARE * computer.memory_bytes if computer.memory_bytes else None,
    )
    if not computer.peak:
        return cost
    # Evaluations for each position to train on: the simulations of all moves over the moves kept.
    share, simulations = config.self_play.full_search_share, config.search.simulations
    evaluations = (share * simulations + (1 - share) * config.self_play.fast_simulations) / share
    of_training, of_evaluations = RECORDED_SHARES[computer.device]
    trains = of_training * computer.peak / (PASSES_OF_STEP * flop)
    plays = of_evaluations * computer.peak / flop / evaluations
    hours = MILLION / trains / 3600
    if config.self_play.mode != "supervised":
        hours += MILLION / config.self_play.reuse / plays / 3600
    used, ranks = plays * config.self_play.reuse, computer.ranks  # used: a second, for training
    actors = max(range(1, ranks) or (0,), key=lambda number: min(trains * (ranks - number), used * number))
    return replace(cost, trains=trains, plays=plays, hours=hours, actors=actors)


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(entry)}" for name, entry in value.items())
    return "; ".join(map(_in_words, value)) or "none" if isinstance(value, (list, tuple)) else str(value)


def cost_lines(costs: Sequence[PresetCost], computer: Computer) -> list[str]:
    """A row per preset, and what the columns mean."""
    head = ("preset", "network", "parameters", "FLOP", "fits", "trains", "plays", "1 M positions", "actors")
    rows = [
        (
            cost.preset,
            f"{cost.game} {cost.network}",
            f"{cost.parameters / 1e6:,.1f} M",
            f"{cost.flop / 1e9:,.3g} G",
            {True: "yes", False: "no", None: "?"}[cost.fits],
            rate(cost.trains),
            rate(cost.plays),
            "?" if cost.hours is None else duration(3600 * cost.hours),
            "?" if cost.actors is None else f"{cost.actors} of {computer.ranks}",
        )
        for cost in costs
    ]
    ranks = f"{counted(computer.ranks, 'rank')} ({computer.device})"
    return [
        *table([head, *rows], "llrrlrrrr"),
        "",
        f"fits: weights, gradients and optimizer state of each of {ranks}.",
        "trains, plays: positions a second, estimated from the peak of the devices to a factor of two or so;",
        "actors: how many devices should play while the others train (--actors), by these two and the reuse.",
    ]


def rate(value: float | None) -> str:
    """Three digits where it is small."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
