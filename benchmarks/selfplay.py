"""Self-play against the bare network: evaluations per second of both, at the same batch and threads.

A network with random weights plays games from their beginnings; only its evaluations count, not exact ends of
games. Bare: the same evaluator on full batches of positions, over and over. The two take turns.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING

import torch

from alphazero.base.errors import ConfigError
from alphazero.games.lines import leaves_of, random_lines
from alphazero.games.registry import game_names, get_spec
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.kernels import TOWER_KERNELS, use_kernels
from alphazero.network.model.precision import EVALUATION_PRECISIONS, choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.settings.flags import Parser, batch_size, count, seconds, whole
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from benchmarks.measuring.clock import medians, rate

if TYPE_CHECKING:
    from alphazero.games.core_types import Leaves

LANES_PER_BATCH = 2
ROUND_MOVES, ENDLESS = 8, 1 << 30


def run(arguments: list[str]) -> dict[str, object]:
    """Medians over the rounds."""
    parser = Parser(prog="alphazero bench selfplay", description=__doc__)
    parser.add_argument("--game", choices=game_names(), default="chess")
    parser.add_argument("--blocks", type=whole(1, 256), default=6)
    parser.add_argument("--filters", type=whole(1, 4096), default=64)
    parser.add_argument("--se-ratio", type=whole(0, 4096), default=8)
    parser.add_argument("--batch", type=batch_size, default=64)
    parser.add_argument("--simulations", type=count, default=100)
    parser.add_argument("--seconds", type=seconds(), default=10.0)
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--precision", choices=EVALUATION_PRECISIONS, default="bf16")
    parser.add_argument(
        "--kernels", choices=TOWER_KERNELS, default="", help="of CUDA (default: the first that are right)"
    )
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config = NetworkConfig(game=args.game, blocks=args.blocks, filters=args.filters, se_ratio=args.se_ratio)
    network = AlphaZeroNet(config, get_spec(args.game), torch.Generator().manual_seed(0)).eval()
    device = choose_device(args.device, 0, os.environ)
    if args.kernels and device.type != "cuda":
        raise ConfigError(f"--kernels {args.kernels}: the CPU has its own; expected --device cuda")
    use_kernels(args.kernels)
    evaluator = NetworkEvaluator(network, device, args.precision, args.batch)
    lines = random_lines(args.game)
    positions = leaves_of([lines[place % len(lines)] for place in range(args.batch)])
    return dict(medians(one_round(evaluator, positions, args) for _ in range(args.rounds)))


def one_round(evaluator: NetworkEvaluator, positions: Leaves, args: argparse.Namespace) -> dict[str, float]:
    """Bare network, steady self-play, a whole round, the bare network again: machines change their speed."""
    lanes = LANES_PER_BATCH * args.batch
    before = bare_speed(evaluator, positions, args.seconds)
    steady = self_play_speed(evaluator, args, lanes, ENDLESS)
    whole_round = self_play_speed(evaluator, args, 2 * lanes, ROUND_MOVES)
    bare = (before + bare_speed(evaluator, positions, args.seconds)) / 2
    return {
        "bare_evaluations_per_s": bare,
        "self_play_evaluations_per_s": steady,
        "share_steady": steady / bare,
        "share_whole_round": whole_round / bare,
    }


def bare_speed(evaluator: NetworkEvaluator, positions: Leaves, least_s: float) -> float:
    """Evaluations per second with two batches in flight, as self-play has them."""
    waiting = [evaluator.submit(*positions) for _ in range(2)]

    def evaluated() -> float:
        waiting.pop(0).result()
        waiting.append(evaluator.submit(*positions))
        return evaluator.batch_size

    speed = rate(evaluated, least_s)
    for pending in waiting:
        pending.result()
    return speed


def self_play_speed(
    evaluator: NetworkEvaluator, args: argparse.Namespace, num_lanes: int, moves: int
) -> float:
    """Evaluations per second of so many moves in every lane; endless ones end with the time."""
    settings = self_play_settings(SearchConfig(simulations=args.simulations), SelfPlayConfig(), seed=1)
    lanes = [new_lane(number) for number in range(num_lanes)]
    end = time.perf_counter() + args.seconds if moves == ENDLESS else float("inf")

    def played() -> float:
        return play(
            args.game,
            settings,
            lanes,
            moves,
            evaluator,
            on_progress=lambda moves, games: time.perf_counter() < end,
        ).evaluations

    return rate(played, 0.0)
