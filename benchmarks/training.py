"""Training as a user starts it: `alphazero launch` for some seconds on the embedded games."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from alphazero.games.registry import get_spec
from alphazero.measure.short_run import GIB, ShortTraining, train_for
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.flags import Parser, batch_size, count, seconds, whole
from alphazero.settings.sections import NetworkConfig
from benchmarks.network import forward_flops

PASSES_IN_FORWARDS = 3  # a backward pass costs two forwards
QUARTILES_OF_NORMAL = 1.349  # distance of a normal distribution's quartiles in standard deviations


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--gpus", type=count, default=1, help="ranks; CPU ranks where there is no GPU")
    parser.add_argument("--blocks", type=whole(1, 256), default=6, help="residual blocks")
    parser.add_argument("--filters", type=whole(1, 4096), default=64, help="channels of the tower")
    parser.add_argument("--batch", type=batch_size, default=256, help="positions per step over all ranks")
    parser.add_argument(
        "--micro-batch", type=whole(0), default=0, help="positions per pass; 0: the trainer's choice"
    )
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--zero-stage", type=whole(0, 3), default=0)
    parser.add_argument("--compile", action="store_true", help="torch.compile the network")
    parser.add_argument("--log-interval", type=count, default=1, help="steps of one measurement")
    parser.add_argument("--checkpoint-interval", type=whole(0), default=0, help="steps; 0: no checkpoint")
    parser.add_argument("--seconds", type=seconds(), default=4.0, help="of measured steps")


def run(arguments: list[str]) -> dict[str, object]:
    """Positions/s (median of the log intervals), TFLOP/s, memory, idle share, the pause of a checkpoint."""
    parser = Parser(prog="alphazero bench training", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        trained = train(vars(args), Path(directory))
    speed = trained.samples_per_s
    network = AlphaZeroNet(NetworkConfig(blocks=args.blocks, filters=args.filters), get_spec("chess"))
    figures: dict[str, object] = {
        "ranks": trained.ranks,
        "positions_per_s": speed,
        "step_ms": 1000 * args.batch / speed,
        "steps_spread": spread([args.batch / line["samples_per_s"] for line in trained.speeds]),
        "tflops": speed * PASSES_IN_FORWARDS * forward_flops(network, network.spec) / 1e12,
        "memory_gib": trained.memory_bytes / GIB,
    }
    if busy := trained.gpu_figures("utilisation_percent"):
        figures["device_idle_share"] = 1 - statistics.mean(busy) / 100
    if args.checkpoint_interval and (pause := pause_in_steps(trained, args.checkpoint_interval)) is not None:
        figures["checkpoint_pause_in_steps"] = pause
    return figures


def train(settings: Mapping[str, object], directory: Path) -> ShortTraining:
    """A run of the launcher with the flags of this benchmark as its settings."""
    precision = settings["precision"]
    flags = ["--config", "chess_20x256", "--device", str(settings["device"]), "--gpus", str(settings["gpus"])]
    flags += ["--precision", "fp32" if precision == "tf32" else str(precision)]
    flags += ["--tf32" if precision == "tf32" else "--no-tf32"]
    for name in ("blocks", "filters", "zero_stage", "log_interval"):
        flags += [f"--{name.replace('_', '-')}", str(settings[name])]
    flags += ["--batch-size", str(settings["batch"])]
    flags += ["--micro-batch-size", str(settings["micro_batch"])] if settings["micro_batch"] else []
    flags += ["--checkpoint-interval", str(settings["checkpoint_interval"] or 10**6)]
    flags += ["--compile"] if settings["compile"] else []
    return train_for(flags, float(str(settings["seconds"])), directory)


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
