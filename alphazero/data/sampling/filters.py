"""Filters of a window: games that are left out, positions that are not trained on, equal ones made one.

Each filter looks at what those before it left. Columns are read shard by shard and no game is looked at for
itself, so that a hundred million games take seconds, and minutes where positions are filtered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.data.sampling.loader import WindowEncoder
from alphazero.data.sampling.window import GamePlies, SampleGroups, Window, arrays_of
from alphazero.data.store.columns import list_view
from alphazero.data.store.game_filters import GAME_FILTERS, FilterCount, filter_texts, removed_by
from alphazero.data.store.store import ShardView
from alphazero.games.registry import get_spec
from alphazero.settings.data import GameFilters, SampleFilters, filter_text

# Shapes: P places, positions of the games of one shard; E entries of a column of clocks; G games of a shard.

# Merging holds them all in memory, some 28 bytes each at the most: 3.8 GB a rank.
MOST_MERGED = 2**27
_NO_CLOCK = -1
_MS = 1000.0


def with_filters(window: Window, filters: SampleFilters) -> Window:
    """The window without games and positions that are no part of the data: those of GameFilters, min_clock.

    Raises ConfigError where no game can pass, DataError where none does.
    """
    window = _filter_games(window, filters)
    return _filter_clocks(window, filters.min_clock) if filters.min_clock else window


def for_training(window: Window, filters: SampleFilters, seed: int, *, num_threads: int) -> Window:
    """The window without positions that are held back from training alone: skip_plies,
    max_positions_per_game (drawn from `seed`), merge_duplicates.

    Raises DataError where nothing is left, or too much to be merged.
    """
    skipped, most = filters.skip_plies, filters.max_positions_per_game
    if skipped:
        window = _without_places(window, "skip_plies", skipped, lambda places: places.ply >= skipped)
    if most:
        window = _draw(window, most, seed)
    return _merge(window, num_threads) if filters.merge_duplicates else window


def _filter_games(window: Window, filters: GameFilters) -> Window:
    texts = filter_texts(filters)
    if not texts:
        return window
    first = np.zeros(window.num_games, np.uint8)
    for index, view in enumerate(window.shards):
        rows = window.rows_of_shard(index)
        first[rows] = removed_by(view.batch, view.num_games, filters)[window.game[rows]]
    left, *removed = np.bincount(first, minlength=len(texts) + 1).tolist()
    before = left + np.cumsum(removed[::-1])[::-1]
    counts = [FilterCount(text, "game", removed[i], int(before[i])) for i, text in enumerate(texts)]
    kept = window.of_games(np.flatnonzero(first == 0))
    return _checked(dataclasses.replace(kept, filtered=(*window.filtered, *counts)))


@dataclasses.dataclass(frozen=True, eq=False)
class _ShardPlaces:
    """Positions of the games of one shard: the ply of each, i32 [P], and which of the games, i64 [P]."""

    view: ShardView
    games: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    ply: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]
    shard: int


def _places_of(window: Window, index: int) -> _ShardPlaces:
    rows = window.rows_of_shard(index)
    lengths = np.diff(window.ply_offset[rows.start : rows.stop + 1])
    ply = window.plies_at(int(window.ply_offset[rows.start]), int(window.ply_offset[rows.stop]))
    row = np.repeat(np.arange(len(lengths)), lengths)
    return _ShardPlaces(window.shards[index], window.game[rows], lengths, ply, row, index)


def _without_places(
    window: Window,
    name: str,
    value: object,
    keeps: Callable[[_ShardPlaces], npt.NDArray[np.bool_]],
    *,
    seed: int | None = None,
) -> Window:
    """The window with the places that `keeps` selects, as filter `name`; games without any are gone."""
    parts = []
    for index in range(len(window.shards)):
        places = _places_of(window, index)
        kept = keeps(places)
        ply, row = places.ply[kept], places.row[kept]
        counts = np.bincount(row)
        kept_rows = np.flatnonzero(counts)
        lengths = counts[kept_rows]
        end = np.cumsum(lengths)
        first = ply[end - lengths].astype(np.int64)
        in_list = ply[end - 1] - first + 1 != lengths  # plies with a gap
        num_listed = np.cumsum(lengths * in_list)
        begin = np.where(in_list, num_listed - lengths * in_list, -1 - first)
        shard = np.zeros(len(kept_rows), np.int32)
        listed_ply = ply[np.repeat(in_list, lengths)]
        parts.append(GamePlies(1, shard, places.games[kept_rows], lengths, begin, listed_ply))
    arrays = arrays_of(parts)
    before, left = int(window.ply_offset[-1]), int(arrays["ply_offset"][-1])
    count = FilterCount(filter_text(name, value), "position", before - left, before, seed=seed)
    return _checked(dataclasses.replace(window, **arrays, filtered=(*window.filtered, count)))


def _filter_clocks(window: Window, min_clock: float) -> Window:
    """Positions without a clock stay."""

    def keeps(places: _ShardPlaces) -> npt.NDArray[np.bool_]:
        clock = _clocks_before(places)
        kept: npt.NDArray[np.bool_] = (clock == _NO_CLOCK) | (clock >= min_clock * _MS)
        return kept

    return _without_places(window, "min_clock", min_clock, keeps)


def _clocks_before(places: _ShardPlaces) -> npt.NDArray[np.int64]:
    """i64 [P]: milliseconds on the mover's clock: after its move before (ply - 2), else after this one.

    _NO_CLOCK where neither is known.
    """
    batch = places.view.batch
    if batch is None or "clock_ms" not in batch.schema.names:
        return np.full(len(places.ply), _NO_CLOCK, np.int64)
    clocks, game = list_view(batch, "clock_ms", nullable=True), places.games[places.row]
    has_after, after = clocks.entries(game, places.ply)
    has_before, before = clocks.entries(game, np.maximum(places.ply - 2, 0))
    clock = np.where(has_after, after.astype(np.int64), _NO_CLOCK)
    chosen: npt.NDArray[np.int64] = np.where(has_before & (places.ply >= 2), before.astype(np.int64), clock)
    return chosen


def _draw(window: Window, most: int, seed: int) -> Window:
    def keeps(places: _ShardPlaces) -> npt.NDArray[np.bool_]:
        # A game keeps its draw whatever other filters leave of its neighbours.
        game_key = (np.uint64(places.shard) << np.uint64(32)) + places.games.astype(np.uint64)
        drawn: npt.NDArray[np.uint8] = _core.draw_positions(seed, game_key, places.lengths, most)
        return drawn.astype(np.bool_)

    return _without_places(window, "max_positions_per_game", most, keeps, seed=seed)


def _merge(window: Window, num_threads: int) -> Window:
    if window.num_samples > MOST_MERGED:
        raise DataError(
            f"merge_duplicates: {window.num_samples:,} positions; expected at most {MOST_MERGED:,}, which are"
            " held in memory (max_positions_per_game and the other filters make them fewer)"
        )
    encoder = WindowEncoder(window, get_spec(window.game_name), num_threads=num_threads)
    groups = SampleGroups(*_core.group_samples(encoder.position_keys()))
    count = FilterCount(
        filter_text("merge_duplicates", value=True), "position", groups.num_fewer, window.num_samples
    )
    return dataclasses.replace(window, groups=groups, filtered=(*window.filtered, count))


def _checked(window: Window) -> Window:
    """The window; raises DataError, with what each filter did, where nothing is left of it."""
    if not window.num_games and window.filtered and any(count.removed for count in window.filtered):
        raise DataError(f"the filters leave no game to train on: {'; '.join(map(str, window.filtered))}")
    return window


_OF_POSITIONS = {"min_clock", "skip_plies", "max_positions_per_game", "merge_duplicates"}
assert {field.name for field in dataclasses.fields(SampleFilters)} == GAME_FILTERS | _OF_POSITIONS
