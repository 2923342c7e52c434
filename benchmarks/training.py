"""Training as a user starts it: `alphazero launch` for some seconds, on the embedded games.

All other flags go to `alphazero launch`.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alphazero.network.model.sizes import PASSES_OF_STEP, forward_flops
from alphazero.settings.flags import Parser, count, seconds
from alphazero.settings.sections import NetworkConfig
from benchmarks.measuring.short_run import GIB, ShortTraining, train_for

DEFAULTS = ("--gpus", "1", "--log-interval", "1")
# Where no preset is named: a plain tower, tf32 off unless asked for: figures are those of a precision.
WITHOUT_PRESET = (
    *("--config", "chess_20x256", "--blocks", "6", "--filters", "64", "--batch-size", "256"),
    *("--se-ratio", "0", "--policy-head", "convolution", "--ema-decay", "0", "--no-mirror"),
    *("--precision", "fp32", "--no-tf32"),
)
NEVER = 10**6  # steps
QUARTILES_OF_NORMAL = 1.349  # distance of a normal distribution's quartiles in standard deviations


def run(arguments: list[str]) -> dict[str, object]:
    """Positions/s (median of the log intervals), TFLOP/s, memory, start, idle share, a checkpoint's pause."""
    parser = Parser(prog="alphazero bench training", description=__doc__)
    parser.add_argument("--seconds", type=seconds(), default=4.0, help="of measured steps")
    parser.add_argument("--checkpoint-interval", type=count, default=NEVER, help="steps (default: none)")
    args, flags = parser.parse_known_args(arguments)
    flags += ["--checkpoint-interval", str(args.checkpoint_interval)]
    trained, settings = train(flags, args.seconds)
    lengths, network = step_lengths(trained, settings), NetworkConfig(**settings["network"])
    speed = trained.samples_per_s
    figures: dict[str, object] = {
        "ranks": trained.ranks,
        "positions_per_s": speed,
        "step_ms": 1000 * statistics.median(lengths),
        "steps_spread": spread(lengths),
        "tflops": speed * PASSES_OF_STEP * forward_flops(network) / 1e12,
        "memory_gib": trained.memory_bytes / GIB,
        "start_s": trained.start_s,
    }
    if busy := trained.gpu_figures("utilisation_percent"):
        figures["device_idle_share"] = 1 - statistics.median(busy) / 100
    if (pause := pause_in_steps(trained, args.checkpoint_interval)) is not None:
        figures["checkpoint_pause_in_steps"] = pause
    return figures


def train(flags: Sequence[str], least_s: float) -> tuple[ShortTraining, dict[str, Any]]:
    """A run of the launcher with these flags, and its settings by section and name."""
    with tempfile.TemporaryDirectory() as directory:
        preset = () if names_preset(flags) else WITHOUT_PRESET
        trained = train_for((*DEFAULTS, *preset, *flags), least_s, Path(directory))
        return trained, json.loads(trained.run.config.read_text(encoding="utf-8"))


def names_preset(flags: Sequence[str]) -> bool:
    """Whether they name a preset, whose values further flags would beat."""
    return any(flag.partition("=")[0] == "--config" for flag in flags)


def step_lengths(trained: ShortTraining, settings: Mapping[str, Any]) -> list[float]:
    """Seconds of a step, by log interval."""
    return [settings["training"]["batch_size"] / line["samples_per_s"] for line in trained.speeds]


def spread(lengths: list[float]) -> float:
    """The standard deviation as a share of the median, by the quartiles: one odd step does not make it."""
    if len(lengths) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(lengths, n=4)
    return (high - low) / QUARTILES_OF_NORMAL / middle


def pause_in_steps(trained: ShortTraining, interval: int) -> float | None:
    """How much longer the step after a checkpoint takes, in median steps; None without one."""
    lengths = {round(line["step"]): 1 / line["samples_per_s"] for line in trained.speeds}
    paused = [length for step, length in lengths.items() if step % interval == 1]
    usual = statistics.median(length for step, length in lengths.items() if step % interval != 1)
    return statistics.median(paused) / usual - 1 if paused else None
