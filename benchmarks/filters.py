"""Filters of a window: seconds for each million games, games made up in columns."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from alphazero.data.sampling.filters import for_training, with_filters
from alphazero.data.sampling.window import Window
from alphazero.data.store.schema import schema_with
from alphazero.data.store.store import ShardView, view_of
from alphazero.data.store.writer import SHARD_GAMES
from alphazero.settings.filters import SampleFilters
from alphazero.settings.flags import Parser, whole
from benchmarks.measuring.one_core import one_core

PLIES = 60  # of each game
GAME_FILTERS = SampleFilters(
    min_elo=1200,
    max_elo=1900,
    max_elo_difference=400,
    time_classes=("blitz", "rapid"),
    events=("blitz", "rapid"),
    exclude_terminations=("abandoned",),
)
POSITION_FILTERS = {
    "min_clock": SampleFilters(min_clock=30.0),
    "skip_plies": SampleFilters(skip_plies=10),
    "max_positions_per_game": SampleFilters(max_positions_per_game=8),
}
WORDS = {
    "game": ["chess"],
    "variant": ["standard"],
    "source": ["made up"],
    "event": ["Rated Bullet game", "Rated Blitz game", "Rated Rapid game"],
    "termination": ["Normal", "Time forfeit", "Abandoned"],
    "time_control": ["60+0", "180+2", "300+0", "600+5"],
}


def run(arguments: list[str]) -> dict[str, object]:
    """Medians of CPU seconds on one core."""
    parser = Parser(prog="alphazero bench filters", description=__doc__)
    parser.add_argument("--shards", type=whole(1, 10_000), default=16, help=f"of {SHARD_GAMES:,} games each")
    parser.add_argument("--rounds", type=whole(1, 1000), default=3, help="measurements of each")
    args = parser.parse_args(arguments)
    view = made_up_shard(SHARD_GAMES)
    window = Window.of_shards("chess", [view] * args.shards, list(map(str, range(args.shards))))
    works = {"six_filters_of_games": lambda: with_filters(window, GAME_FILTERS)}
    for name, filters in POSITION_FILTERS.items():
        works[name] = partial(positions_filtered, window, filters)
    figures: dict[str, object] = {"games": window.num_games, "positions": window.num_samples}
    with one_core():
        for name, work in works.items():
            seconds = []
            for _ in range(args.rounds):
                begin = time.process_time()
                work()
                seconds.append(time.process_time() - begin)
            figures[f"{name}_s_per_million_games"] = statistics.median(seconds) * 1e6 / window.num_games
    return figures


def positions_filtered(window: Window, filters: SampleFilters) -> Window:
    """The positions of a window to train on."""
    return for_training(with_filters(window, filters), filters, 0, num_threads=1)


def made_up_shard(num_games: int) -> ShardView:
    """Games with random headers and clocks, and moves that nobody replays."""
    rng = np.random.default_rng(0)
    schema = schema_with(["clock_ms", "time_control"])
    offset = pa.array(np.arange(0, (num_games + 1) * PLIES, PLIES, dtype=np.int32))
    moves = pa.ListArray.from_arrays(offset, pa.array(np.zeros(num_games * PLIES, np.uint16)))
    clocks = rng.integers(0, 300_000, num_games * PLIES).astype(np.uint32)
    columns: dict[str, pa.Array[Any]] = {
        "moves": moves.cast(schema.field("moves").type),
        "result": pa.array(rng.integers(-1, 2, num_games).astype(np.int8)),
        "white_elo": pa.array(rng.integers(1000, 2000, num_games).astype(np.int32)),
        "black_elo": pa.array(rng.integers(1000, 2000, num_games).astype(np.int32)),
        "clock_ms": pa.ListArray.from_arrays(offset, pa.array(clocks)),
    }
    for name, words in WORDS.items():
        places = pa.array(rng.integers(0, len(words), num_games).astype(np.int32))
        columns[name] = pa.DictionaryArray.from_arrays(places, pa.array(words))
    in_order = [columns.get(field.name, pa.nulls(num_games, field.type)) for field in schema]
    return view_of(pa.RecordBatch.from_arrays(in_order, schema=schema), Path("made up"))
