"""Batched inference: evaluations/s of the evaluator, beside its bare forward pass and the plain modules.

`alphazero bench evaluator [--game G] [--blocks N] [--filters N] [--batch N] [--precision P] ...`. The
three take turns, so that a slow moment of the machine hits all; medians over the turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from alphazero.base.errors import ConfigError
from alphazero.games.registry import GameSpec, game_names, get_game, get_spec
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.forward import Forward, ModuleForward
from alphazero.network.model.precision import DTYPES
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads, whole
from alphazero.settings.sections import NetworkConfig


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--game", choices=game_names(), default="chess", help="game the network plays")
    parser.add_argument("--blocks", type=whole(1, 256), default=6, help="residual blocks")
    parser.add_argument("--filters", type=whole(1, 4096), default=64, help="channels of the tower")
    parser.add_argument(
        "--se-ratio", type=whole(0, 4096), default=0, help="squeeze-excitation ratio; 0 is none"
    )
    parser.add_argument("--batch", type=batch_size, default=128, help="positions per pass")
    parser.add_argument("--precision", choices=sorted(DTYPES), default="bf16", help="arithmetic")
    parser.add_argument("--threads", type=threads, default=1, help="CPU threads; 0 leaves torch's choice")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs")
    parser.add_argument("--compile", action="store_true", help="torch.compile the network (CUDA)")
    parser.add_argument("--turns", type=count, default=9, help="measurements of each")
    parser.add_argument("--seconds", type=seconds(), default=0.2, help="length of one measurement")


def run(arguments: list[str]) -> dict[str, object]:
    """Measure on random positions with the usual number of legal moves.

    evaluations_per_s: from arrays to arrays, two batches in flight. forward_per_s: the evaluator's own
    forward pass on planes that are there. modules_per_s: the plain modules on the same planes, channels
    last, in the same precision. The same _per_cpu_s: by the CPU time of all threads, fair on a busy
    machine. efficiency: evaluations_per_s / forward_per_s, the median over turns.
    """
    parser = Parser(prog="alphazero bench evaluator", description=__doc__)
    configure(parser)
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: no CUDA device can be used")
    if args.compile and device.type != "cuda":
        raise ConfigError("--compile: expected --device cuda; the CPU has fused convolutions")
    if args.turns < 1 or args.batch < 1:
        raise ConfigError(f"--turns {args.turns} --batch {args.batch}: expected at least 1")
    if args.threads:
        torch.set_num_threads(args.threads)
    spec = get_spec(args.game)
    config = NetworkConfig(game=args.game, blocks=args.blocks, filters=args.filters, se_ratio=args.se_ratio)
    network = AlphaZeroNet(config, spec, torch.Generator().manual_seed(0))
    evaluator = NetworkEvaluator(network, device, args.precision, args.batch, compiled=args.compile)
    program = evaluator.program
    planes_BCHW = program.expand.planes_BCHW
    modules = ModuleForward(network, device, evaluator.dtype, compiled=False)
    rates = take_turns(
        {
            "evaluations": evaluate_forever(evaluator, spec),
            "forward": forward_once(program.forward, planes_BCHW, device),
            "modules": forward_once(modules, planes_BCHW, device),
        },
        args.batch,
        args.turns,
        args.seconds,
    )
    pairs = zip(rates["evaluations_per_s"], rates["forward_per_s"], strict=True)
    return {
        "benchmark": "evaluator",
        **{key: value for key, value in vars(args).items() if key not in ("turns", "seconds")},
        "torch": torch.__version__,
        "description": evaluator.description,
        "cpu_threads": torch.get_num_threads(),
        "cpu_count": os.cpu_count(),
        **{name: statistics.median(values) for name, values in rates.items()},
        "efficiency": statistics.median(whole / bare for whole, bare in pairs),
        "evaluations_per_s_best": max(rates["evaluations_per_s"]),
    }


def evaluate_forever(evaluator: NetworkEvaluator, spec: GameSpec) -> Callable[[], None]:
    """One whole evaluation a call; where the device works on its own, one more is always under way."""
    rng = np.random.default_rng(0)
    batch_size, num_moves = evaluator.batch_size, get_game(spec.name).usual_moves
    packed = rng.integers(0, 256, (batch_size, spec.packed_bytes), dtype=np.uint8)
    legal_index = rng.integers(0, spec.policy_size, batch_size * num_moves, dtype=np.int32)
    legal_offset = np.arange(0, batch_size * num_moves + 1, num_moves, dtype=np.int32)
    under_way = [evaluator.submit(packed, legal_index, legal_offset)]

    def evaluate() -> None:
        under_way.append(evaluator.submit(packed, legal_index, legal_offset))
        under_way.pop(0).result()

    return evaluate


def forward_once(forward: Forward, planes_BCHW: torch.Tensor, device: torch.device) -> Callable[[], None]:
    """One forward pass per call, to its end."""

    @torch.inference_mode()
    def once() -> None:
        forward(planes_BCHW)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return once


def take_turns(
    contenders: dict[str, Callable[[], None]], batch_size: int, turns: int, seconds: float
) -> dict[str, list[float]]:
    """Positions/s of each contender by the clock and by CPU time, one entry a turn, after one to warm up."""
    rates: dict[str, list[float]] = {
        f"{name}_per{unit}_s": [] for unit in ("", "_cpu") for name in contenders
    }
    for turn in range(turns + 1):
        for name, once in contenders.items():
            calls, start, cpu_start = 0, time.perf_counter(), time.process_time()
            while (passed := time.perf_counter() - start) < seconds or not calls:
                once()
                calls += 1
            if turn:
                rates[f"{name}_per_s"].append(calls * batch_size / passed)
                rates[f"{name}_per_cpu_s"].append(calls * batch_size / (time.process_time() - cpu_start))
    return rates
