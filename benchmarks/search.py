"""Search speed: simulations per second of the core with a network that knows nothing and costs nothing.

`alphazero bench search [--game G] [--slots N] [--threads N] [--seconds S]`. Games of self-play,
800 simulations per move, PUCT with root noise; every leaf's planes are encoded, its legal moves listed, and a
uniform policy and a drawish value come back.
"""

from __future__ import annotations

import argparse

import numpy as np

from alphazero.games.core_types import SelfPlay
from alphazero.games.registry import get_game, get_spec, read_game
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane
from alphazero.settings.flags import Parser, batch_size, count, seconds, threads
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from benchmarks.measuring.clock import rate

WARM_UP_S = 1.0


def run(arguments: list[str]) -> dict[str, object]:
    """Simulations per second in steady state."""
    parser = Parser(prog="alphazero bench search")
    parser.add_argument("--game", default="chess", metavar="GAME", help="any, as --game of training takes it")
    parser.add_argument("--slots", type=batch_size, default=64, help="trees side by side")
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--simulations", type=count, default=800)
    parser.add_argument("--algorithm", choices=("puct", "gumbel"), default="puct")
    parser.add_argument("--seconds", type=seconds(), default=5.0)
    args = parser.parse_args(arguments)
    search = SearchConfig(algorithm=args.algorithm, simulations=args.simulations)
    settings = self_play_settings(search, SelfPlayConfig(), seed=0)
    args.game = read_game("--game", args.game)
    pool = get_game(args.game).core.self_play(settings, args.slots, 1, args.threads)
    for lane in range(args.slots):
        pool.add_lane(new_lane(lane))
    pool.begin(1 << 40)
    figures = measure(pool, args)
    return {"game": args.game, "slots": args.slots, "threads": args.threads, **figures}


def measure(pool: SelfPlay, args: argparse.Namespace) -> dict[str, object]:
    """Steps of the pool after a warm-up."""
    logits = np.zeros(args.slots * get_spec(args.game).max_legal_moves, np.float32)
    wdl = np.full((args.slots, 3), 1 / 3, np.float32)
    packed, legal, _ = pool.step(0)

    def stepped() -> float:
        nonlocal packed, legal
        before = pool.simulations
        packed, legal, _ = pool.step(0, logits[: len(legal)], wdl[: len(packed)])
        return float(pool.simulations - before)

    rate(stepped, WARM_UP_S)
    return {"simulations_per_s": rate(stepped, args.seconds), "moves": pool.moves}
