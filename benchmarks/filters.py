"""Filters of a window: seconds for each million games, games made up in columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from alphazero.data.sampling.filters import for_training, with_filters
from alphazero.data.sampling.window import Window
from alphazero.data.store.writer import SHARD_GAMES
from alphazero.settings.data import SampleFilters
from alphazero.settings.flags import Parser, whole
from benchmarks.measuring.clock import cpu_rate, medians, on_cores
from benchmarks.measuring.shards import window_of

PLIES = 60  # of each game
GAME_FILTERS = SampleFilters(
    min_elo=1200,
    max_elo=1900,
    max_elo_difference=400,
    time_classes=("blitz", "rapid"),
    events=("blitz", "rapid"),
    exclude_terminations=("abandoned",),
)
FILTERS = {
    "six_filters_of_games": GAME_FILTERS,
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
    window = window_of(made_up_games(SHARD_GAMES), args.shards)
    work = {name: partial(games_filtered, window, filters) for name, filters in FILTERS.items()}
    with on_cores(1):
        rates = medians({name: cpu_rate(work[name], 0.0) for name in work} for _ in range(args.rounds))
    figures = {f"{name}_s_per_million_games": 1e6 / speed for name, speed in rates.items()}
    return {"games": window.num_games, "positions": window.num_samples, **figures}


def games_filtered(window: Window, filters: SampleFilters) -> int:
    """The games of a window of which the positions to train on were found."""
    left = with_filters(window, filters)
    if filters is not GAME_FILTERS:
        for_training(left, filters, 0, num_threads=1)
    return window.num_games


def made_up_games(num_games: int) -> dict[str, pa.Array[Any]]:
    """Random headers and clocks, and moves that are not replayed."""
    rng = np.random.default_rng(0)
    offset = pa.array(np.arange(0, (num_games + 1) * PLIES, PLIES, dtype=np.int32))
    clocks = pa.array(rng.integers(0, 300_000, num_games * PLIES).astype(np.uint32))
    columns: dict[str, pa.Array[Any]] = {
        "moves": pa.ListArray.from_arrays(offset, pa.array(np.zeros(num_games * PLIES, np.uint16))),
        "result": pa.array(rng.integers(-1, 2, num_games)),
        "white_elo": pa.array(rng.integers(1000, 2000, num_games)),
        "black_elo": pa.array(rng.integers(1000, 2000, num_games)),
        "clock_ms": pa.ListArray.from_arrays(offset, clocks),
    }
    for name, words in WORDS.items():
        places = pa.array(rng.integers(0, len(words), num_games).astype(np.int32))
        columns[name] = pa.DictionaryArray.from_arrays(places, pa.array(words))
    return columns
