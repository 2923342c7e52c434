"""Loader speed: positions replayed, encoded and packed per second, on one thread and on all."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import alphazero._core as _core
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView
from alphazero.games.registry import get_spec
from alphazero.settings.flags import Parser, batch_size, count, seconds

RANDOM_GAMES, RANDOM_GAME_PLIES = 2000, 130  # about the mean of TCEC games


def run(arguments: list[str]) -> dict[str, object]:
    """Medians of positions/s by the clock."""
    parser = Parser(prog="alphazero bench loader", description=__doc__)
    parser.add_argument("--data", nargs="+", type=Path, default=[], help="game stores or PGN (random games)")
    parser.add_argument("--batch-size", type=batch_size, default=1024, help="positions per batch")
    parser.add_argument("--seconds", type=seconds(), default=1.0, help="length of one measurement")
    parser.add_argument("--repeats", type=count, default=5, help="measurements; the median counts")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as cache:
        if args.data:
            from alphazero.data.open import open_or_import

            window = Window.of_stores(open_or_import(args.data, Path(cache)))
        else:
            window = random_window()
        figures: dict[str, object] = {"games": window.num_games, "positions": window.num_samples}
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            speeds = [
                positions_per_s(window, args.batch_size, threads, args.seconds) for _ in range(args.repeats)
            ]
            figures[f"positions_per_s_{threads}_threads"] = statistics.median(speeds)
    return figures


def random_window() -> Window:
    """A window of one shard in memory: drawn games of random moves."""
    games = [_core.chess_random_playout(number, RANDOM_GAME_PLIES) for number in range(RANDOM_GAMES)]
    view = ShardView(
        name="random",
        path=Path("random"),
        num_games=len(games),
        num_plies=sum(map(len, games)),
        moves=np.concatenate(games).astype(np.uint16),
        moves_offset=np.cumsum([0, *map(len, games)], dtype=np.int32),
        result=np.zeros(len(games), np.int8),
        result_valid=np.ones(len(games), np.bool_),
        fen_bytes=np.zeros(0, np.uint8),
        fen_offset=np.zeros(len(games) + 1, np.int32),
    )
    return Window.of_shards("chess", [view], ["random"])


def positions_per_s(window: Window, batch_size: int, num_threads: int, least_s: float) -> float:
    """Whole steps without the prefetch thread: the cost itself."""
    spec = get_spec("chess")
    sizes = {"batch_size": batch_size, "micro_batch_size": batch_size}
    loader = Loader(window, spec, seed=0, num_threads=num_threads, **sizes)
    loader.step(0)
    begin, step = time.perf_counter(), 0
    while time.perf_counter() - begin < least_s or not step:
        step += 1
        loader.step(step)
    return step * batch_size / (time.perf_counter() - begin)
