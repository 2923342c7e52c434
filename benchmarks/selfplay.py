"""Self-play against the bare network: evaluations per second of both, at the same batch and threads.

A network with random weights plays games from their beginnings; only its evaluations count, not exact ends of
games. Bare: the same evaluator on full batches of positions, over and over. The two take turns.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time

import torch

from alphazero.games.core_types import Line
from alphazero.games.registry import game_names, get_spec, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.precision import EVALUATION_PRECISIONS, choose_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads, whole
from alphazero.settings.sections import NetworkConfig
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from benchmarks.precision import Positions, positions_of

LANES_PER_BATCH = 2
ROUND_MOVES = 8


def run(arguments: list[str]) -> dict[str, object]:
    """Medians over the rounds."""
    parser = Parser(prog="alphazero bench selfplay", description=__doc__)
    parser.add_argument("--game", choices=game_names(), default="chess")
    parser.add_argument("--blocks", type=whole(1, 256), default=6)
    parser.add_argument("--filters", type=whole(1, 4096), default=64)
    parser.add_argument("--se-ratio", type=whole(0, 4096), default=8)
    parser.add_argument("--batch", type=batch_size, default=64)
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--simulations", type=count, default=100)
    parser.add_argument("--seconds", type=seconds(), default=10.0)
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--precision", choices=EVALUATION_PRECISIONS, default="bf16")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    spec = get_spec(args.game)
    config = NetworkConfig(game=args.game, blocks=args.blocks, filters=args.filters, se_ratio=args.se_ratio)
    network = AlphaZeroNet(config, spec, torch.Generator().manual_seed(0)).eval()
    device = choose_device(args.device, 0, os.environ)
    evaluator = NetworkEvaluator(network, device, args.precision, args.batch)
    positions = positions_of(random_lines(args.game, args.batch))
    rounds = [one_round(evaluator, positions, args) for _ in range(args.rounds)]
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


def one_round(
    evaluator: NetworkEvaluator, positions: Positions, args: argparse.Namespace
) -> dict[str, float]:
    """Bare network, steady self-play, a whole round, the bare network again: machines change their speed."""
    before = bare_speed(evaluator, positions, args.seconds)
    steady, _ = self_play_speed(evaluator, args, LANES_PER_BATCH * args.batch, 1 << 30)
    whole_round, games_per_hour = self_play_speed(
        evaluator, args, 2 * LANES_PER_BATCH * args.batch, ROUND_MOVES
    )
    bare = (before + bare_speed(evaluator, positions, args.seconds)) / 2
    return {
        "bare_evaluations_per_s": bare,
        "self_play_evaluations_per_s": steady,
        "share_steady": steady / bare,
        "share_whole_round": whole_round / bare,
        "games_per_hour": games_per_hour,
    }


def random_lines(game: str, number: int) -> list[Line]:
    """Two to eleven random moves from the beginning."""
    chance, lines = random.Random(0), [make_line(game) for _ in range(number)]
    for place, line in enumerate(lines):
        for _ in range(2 + place % 10):
            line.push(line.index_to_move(chance.choice(list(line.legal_indices()))))
    return lines


def bare_speed(evaluator: NetworkEvaluator, positions: Positions, seconds: float) -> float:
    """Evaluations per second with two batches in flight, as self-play has them."""
    batch = (positions.packed, positions.legal_index, positions.legal_offset)
    waiting = [evaluator.submit(*batch) for _ in range(2)]
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        waiting.pop(0).result()
        waiting.append(evaluator.submit(*batch))
        done += evaluator.batch_size
    elapsed = time.perf_counter() - begin
    for pending in waiting:
        pending.result()
    return done / elapsed


def self_play_speed(
    evaluator: NetworkEvaluator, args: argparse.Namespace, num_lanes: int, moves: int
) -> tuple[float, float]:
    """Evaluations per second and games per hour of so many moves in every lane; endless ones are cut off."""
    settings = self_play_settings(SearchConfig(simulations=args.simulations), SelfPlayConfig(), seed=1)
    lanes = [new_lane(number) for number in range(num_lanes)]
    begin = time.perf_counter()

    def on_progress(moves_made: int, games: int) -> bool:
        return moves == ROUND_MOVES or time.perf_counter() - begin < args.seconds

    played = play(
        args.game, settings, lanes, moves, evaluator, num_threads=args.threads, on_progress=on_progress
    )
    elapsed = time.perf_counter() - begin
    plies = [len(game.moves) for game in played.finished] or [settings.max_plies]
    return played.evaluations / elapsed, played.moves / statistics.mean(plies) / elapsed * 3600
