"""Loader speed: positions replayed, encoded and packed per second, on one thread and on all."""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import alphazero._core as _core
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.window import Window
from alphazero.data.store.schema import SCHEMA
from alphazero.data.store.store import view_of
from alphazero.games.registry import get_spec
from alphazero.settings.flags import Parser, batch_size, count, seconds
from benchmarks.measuring.clock import rate

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
    """Drawn games of random moves."""
    games = [_core.chess_random_playout(number, RANDOM_GAME_PLIES) for number in range(RANDOM_GAMES)]
    known: dict[str, pa.Array[Any]] = {"moves": pa.array(games), "result": pa.array([0] * RANDOM_GAMES)}
    columns = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(RANDOM_GAMES, field.type)
        for field in SCHEMA
    ]
    view = view_of(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), Path("made up"))
    return Window.of_shards("chess", [view], ["made up"])


def positions_per_s(window: Window, batch_size: int, num_threads: int, least_s: float) -> float:
    """Whole steps without the prefetch thread: the cost itself."""
    sizes = {"batch_size": batch_size, "micro_batch_size": batch_size}
    loader = Loader(window, get_spec("chess"), seed=0, num_threads=num_threads, **sizes)
    loader.step(0)
    steps = itertools.count(1)

    def stepped() -> float:
        loader.step(next(steps))
        return batch_size

    return rate(stepped, least_s)
