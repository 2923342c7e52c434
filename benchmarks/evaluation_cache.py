"""What a cache of evaluations is worth to self-play: the same games with and without it, in turn.

In each generation every lane plays rounds of moves with the preset's settings, once without a cache and once
with one that is empty at first. Seconds are CPU time of the process. Without weights the network is new.
"""

from __future__ import annotations

import time

import torch

import alphazero._core as _core
from alphazero.games.registry import get_spec
from alphazero.network.inference.purpose import evaluator_for_self_play
from alphazero.network.model.precision import EVALUATION_PRECISIONS
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.open_network import open_network
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, new_cache, new_lane, play
from alphazero.settings.flags import Parser, batch_size, count, whole
from alphazero.settings.load import load_config
from benchmarks.measuring.clock import medians

ROUNDS = 2


def run(arguments: list[str]) -> dict[str, object]:
    """Medians over the generations."""
    parser = Parser(prog="alphazero bench evaluation_cache", description=__doc__)
    parser.add_argument("--config", default="connect4")
    parser.add_argument("--weights")
    parser.add_argument("--lanes", type=count, default=512)
    parser.add_argument("--moves", type=count, default=8)
    parser.add_argument("--generations", type=count, default=3)
    parser.add_argument("--mebibytes", type=whole(1, 1 << 20), default=64)
    parser.add_argument("--batch", type=batch_size, help="positions of an evaluation (default: the preset's)")
    parser.add_argument("--precision", choices=EVALUATION_PRECISIONS, default="bf16")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config, device = load_config(args.config, {}), torch.device("cpu")
    network = AlphaZeroNet(config.network, get_spec(config.network.game), torch.Generator().manual_seed(0))
    if args.weights:
        network, _ = open_network(args.weights, device)
    size = args.batch or config.self_play.evaluation_batch
    evaluator = evaluator_for_self_play(network.eval(), device, args.precision, size)
    settings = self_play_settings(config.search, config.self_play, seed=1)

    def generation(
        lanes: list[_core.SelfPlayGame], cache: _core.EvaluationCache | None
    ) -> tuple[float, list[Played]]:
        """Searched moves per CPU second of rounds of play from these lanes on, and the rounds."""
        found: list[Played] = []
        begin = time.process_time()
        if cache is not None:
            cache.clear()
        for _ in range(ROUNDS):
            found.append(play(config.network.game, settings, lanes, args.moves, evaluator, cache=cache))
            lanes = found[-1].under_way
        return sum(played.moves for played in found) / (time.process_time() - begin), found

    lanes = [new_lane(number) for number in range(args.lanes)]
    generation(lanes[:1], None)  # memory is taken
    caches = {"without": None, "with": new_cache(args.mebibytes)}
    rounds: list[dict[str, float]] = []
    for number in range(args.generations):
        turns = {kind: generation(lanes, caches[kind]) for kind in sorted(caches, reverse=number % 2 == 0)}
        speeds = {f"moves_per_cpu_s_{kind}": turns[kind][0] for kind in caches}
        cached = turns["with"][1]
        shares = {
            f"cached_share_of_round_{place}": played.cached / (played.cached + played.evaluations)
            for place, played in enumerate(cached, start=1)
        }
        rounds.append({**speeds, "speedup": turns["with"][0] / turns["without"][0], **shares})
        lanes = cached[-1].under_way
    return dict(medians(rounds))
