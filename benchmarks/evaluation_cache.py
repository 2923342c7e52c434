"""What a cache of evaluations is worth to self-play: the same games with and without it, in turn.

`alphazero bench evaluation_cache [--config C] [--weights W] [--lanes N] [--moves N] [--rounds N]
[--generations N] [--mebibytes N] [--batch N] [--threads N]`. In each generation every lane plays N rounds of
N moves with the preset's settings, once without a cache and once with one that is empty at first. Seconds are
CPU time of the process, so that other programs matter less. Without weights the network is an untrained one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

import alphazero._core as _core
from alphazero.games.registry import get_spec
from alphazero.network.inference.purpose import evaluator_for_self_play
from alphazero.network.model.precision import EVALUATION_PRECISIONS
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, new_cache, new_lane, play
from alphazero.search.batched import PoolEvaluator
from alphazero.settings.flags import Parser, batch_size, count, threads, whole
from alphazero.settings.load import Config, load_config


def run(arguments: list[str]) -> dict[str, object]:
    """Medians over the generations."""
    parser = Parser(prog="alphazero bench evaluation_cache")
    parser.add_argument("--config", default="connect4")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--lanes", type=count, default=512)
    parser.add_argument("--moves", type=count, default=8)
    parser.add_argument("--rounds", type=count, default=2)
    parser.add_argument("--generations", type=count, default=3)
    parser.add_argument("--mebibytes", type=whole(1, 1 << 20), default=64)
    parser.add_argument("--batch", type=batch_size, help="positions of an evaluation (default: the preset's)")
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--precision", choices=EVALUATION_PRECISIONS, default="bf16")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    config = load_config(args.config, {})
    evaluator = evaluator_of(config, args)
    lanes = [new_lane(number) for number in range(args.lanes)]
    play_for(config, evaluator, lanes[:1], 1, None, args.threads)  # memory is taken
    kinds = {"without": None, "with": new_cache(args.mebibytes)}
    measured: dict[str, list[Measured]] = {kind: [] for kind in kinds}
    for number in range(args.generations):
        for kind, cache in list(kinds.items())[:: -1 if number % 2 else 1]:
            measured[kind].append(generation(config, evaluator, lanes, cache, args))
        lanes = measured["with"][-1].rounds[-1].under_way
    return figures_of(measured["without"], measured["with"])


def evaluator_of(config: Config, args: argparse.Namespace) -> PoolEvaluator:
    """The network of the weights, or an untrained one of the preset."""
    spec, device = get_spec(config.network.game), torch.device("cpu")
    if args.weights:
        network, _ = open_network(args.weights, device)
    else:
        network = AlphaZeroNet(config.network, spec, torch.Generator().manual_seed(0)).eval()
    size = args.batch or config.self_play.evaluation_batch
    return evaluator_for_self_play(network, device, args.precision, size)


@dataclass
class Measured:
    """A generation: CPU seconds, and what was played in each round."""

    seconds: float = 0.0
    rounds: list[Played] = field(default_factory=list)

    @property
    def moves_per_s(self) -> float:
        """Searched moves."""
        return sum(played.moves for played in self.rounds) / self.seconds


def generation(
    config: Config,
    evaluator: PoolEvaluator,
    lanes: list[_core.SelfPlayGame],
    cache: _core.EvaluationCache | None,
    args: argparse.Namespace,
) -> Measured:
    """Rounds of play from these lanes on."""
    measured = Measured()
    begin = time.process_time()
    if cache is not None:
        cache.clear()
    for _ in range(args.rounds):
        measured.rounds.append(play_for(config, evaluator, lanes, args.moves, cache, args.threads))
        lanes = measured.rounds[-1].under_way
    measured.seconds = time.process_time() - begin
    return measured


def play_for(
    config: Config,
    evaluator: PoolEvaluator,
    lanes: list[_core.SelfPlayGame],
    moves: int,
    cache: _core.EvaluationCache | None,
    num_threads: int,
) -> Played:
    """One round."""
    settings = self_play_settings(config.search, config.self_play, seed=1)
    game = config.network.game
    return play(game, settings, lanes, moves, evaluator, cache=cache, num_threads=num_threads)


def figures_of(without: list[Measured], cached: list[Measured]) -> dict[str, object]:
    """Moves per CPU second, their ratio, and the share of the positions that the cache knew, by round."""
    figures: dict[str, object] = {
        "moves_per_cpu_s_without": statistics.median(each.moves_per_s for each in without),
        "moves_per_cpu_s_with": statistics.median(each.moves_per_s for each in cached),
        "speedup": statistics.median(
            one.moves_per_s / other.moves_per_s for one, other in zip(cached, without, strict=True)
        ),
    }
    for number in range(len(cached[0].rounds)):
        figures[f"cached_share_of_round_{number + 1}"] = statistics.median(
            each.rounds[number].cached / (each.rounds[number].cached + each.rounds[number].evaluations)
            for each in cached
        )
    return figures
