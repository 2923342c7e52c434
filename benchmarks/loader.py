"""Loader speed: positions replayed, encoded and packed a second, on one thread and on all.

`alphazero bench loader [--data PATH ...] [--batch-size N] [--seconds S] [--repeats R]`. Without data:
games of random moves made here, as long as those of strong engines.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import alphazero._core as _core
from alphazero.data.open import open_or_import
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView
from alphazero.games.registry import get_spec
from alphazero.settings.flags import Parser, batch_size, count, seconds

RANDOM_GAMES = 2000
RANDOM_GAME_PLIES = 130  # about the mean of TCEC games


def random_window(num_games: int, max_plies: int, seed: int) -> Window:
    """A window of one shard in memory: random games of at most max_plies, drawn where not mated."""
    rng = random.Random(seed)
    moves: list[int] = []
    offsets, results = [0], []
    for _ in range(num_games):
        line = _core.ChessLine()
        while line.num_plies < max_plies and (legal := line.legal()):
            move = rng.choice(legal)
            line.push(move)
            moves.append(move)
        lost = line.outcome().value < 0
        results.append((-1 if line.first_player_to_move else 1) if lost else 0)
        offsets.append(len(moves))
    view = ShardView(
        name="random",
        path=Path("random"),
        num_games=num_games,
        num_plies=len(moves),
        moves=np.array(moves, np.uint16),
        moves_offset=np.array(offsets, np.int32),
        result=np.array(results, np.int8),
        result_valid=np.ones(num_games, np.bool_),
        fen_bytes=np.zeros(0, np.uint8),
        fen_offset=np.zeros(num_games + 1, np.int32),
    )
    return Window.of_shards("chess", [view], [f"random-{seed}"])


@dataclass(frozen=True)
class Speed:
    """Positions/s by the clock, and by the CPU time of all threads (fair on a busy machine)."""

    per_second: int
    per_cpu_second: int


def measure_speed(window: Window, batch_size: int, num_threads: int, seconds: float) -> Speed:
    """Encode whole steps for at least this long, without the prefetch thread: the cost itself."""
    loader = Loader(
        window,
        get_spec("chess"),
        seed=0,
        batch_size=batch_size,
        micro_batch_size=batch_size,
        num_threads=num_threads,
    )
    loader.step(0)
    start, cpu_start = time.perf_counter(), time.process_time()
    for step in itertools.count(1):
        loader.step(step)
        elapsed_s = time.perf_counter() - start
        if elapsed_s >= seconds:
            positions = step * batch_size
            return Speed(round(positions / elapsed_s), round(positions / (time.process_time() - cpu_start)))
    raise AssertionError("unreachable")


def build_parser() -> argparse.ArgumentParser:
    """The arguments of this benchmark."""
    parser = Parser(prog="alphazero bench loader", description=__doc__)
    parser.add_argument(
        "--data", nargs="+", type=Path, default=[], help="game stores or PGN; random games if absent"
    )
    parser.add_argument("--batch-size", type=batch_size, default=1024, help="positions per batch")
    parser.add_argument("--seconds", type=seconds(), default=1.0, help="length of one measurement")
    parser.add_argument("--repeats", type=count, default=5, help="measurements; the median counts")
    return parser


def measure(window: Window, args: argparse.Namespace) -> dict[str, object]:
    """Figures of one window: medians, and all measurements beside them."""
    figures: dict[str, object] = {
        "games": window.num_games,
        "positions": window.num_samples,
        "plies_per_game": round(window.num_samples / window.num_games, 1),
        "batch_size": args.batch_size,
    }
    for num_threads in sorted({1, len(os.sched_getaffinity(0))}):
        speeds = [
            measure_speed(window, args.batch_size, num_threads, args.seconds) for _ in range(args.repeats)
        ]
        suffix = f"{num_threads}_threads"
        figures[f"positions_per_s_{suffix}"] = round(statistics.median(s.per_second for s in speeds))
        figures[f"positions_per_s_{suffix}_all"] = [s.per_second for s in speeds]
        figures[f"positions_per_cpu_s_{suffix}"] = round(statistics.median(s.per_cpu_second for s in speeds))
    return figures


def run(arguments: list[str]) -> dict[str, object]:
    """Measure; returns figures by name, speeds in positions/s."""
    args = build_parser().parse_args(arguments)
    if not args.data:
        window = random_window(RANDOM_GAMES, RANDOM_GAME_PLIES, seed=0)
        return {"data": f"{RANDOM_GAMES} random games", **measure(window, args)}
    with tempfile.TemporaryDirectory() as cache:
        window = Window.of_stores(open_or_import(args.data, Path(cache)))
        return {"data": [str(path) for path in args.data], **measure(window, args)}
