"""The openings of the newest self-play games as a tree, and the calibration of the search's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from alphazero.base.text import shortened
from alphazero.data.store.store import GameStore, ShardView
from alphazero.games.core_types import Line
from alphazero.games.lines import first_player_moves
from alphazero.games.notation import move_text
from alphazero.games.registry import make_line
from alphazero.run.validation_record import Bins
from alphazero.show.report.panel import rounded

NEWEST_GAMES = 2000
DEPTH = 8
FEWEST_GAMES = 2  # of a branch
SMALLEST_SHARE = 0.005
MOST_BRANCHES = 8
NUM_BINS = 20


Game = tuple[Sequence[int], float]  # its first moves, and the first player's score: 1, 1/2 or 0


def opening_tree(store: GameStore) -> dict[str, Any] | None:
    """The tree of the newest games from the usual start, as JSON; None without any."""
    games = []
    for view, game in _newest(store):
        if view.fen_offset[game] == view.fen_offset[game + 1] and view.result_valid[game]:
            begin, end = (int(place) for place in view.moves_offset[game : game + 2])
            moves = view.moves[begin : min(end, begin + DEPTH)].tolist()
            games.append((moves, (int(view.result[game]) + 1) / 2))
    if not games:
        return None
    fewest = max(FEWEST_GAMES, SMALLEST_SHARE * len(games))
    return _branch("", games, make_line(store.manifest.game_now), 0, fewest)


def _newest(store: GameStore) -> Iterator[tuple[ShardView, int]]:
    left = NEWEST_GAMES
    for view in reversed(store.shards):
        view.check_size()
        for game in range(view.num_games - 1, max(-1, view.num_games - 1 - left), -1):
            yield view, game
        left -= min(left, view.num_games)
        if not left:
            return


def _branch(text: str, games: Sequence[Game], line: Line, depth: int, fewest: float) -> dict[str, Any]:
    """The games that have come so far, by the move called `text`, and their continuations."""
    by_move: dict[int, list[Game]] = {}
    for moves, score in games:
        if len(moves) > depth:
            by_move.setdefault(moves[depth], []).append((moves, score))
    legal = set(line.legal())
    chosen = [(move, its) for move, its in by_move.items() if len(its) >= fewest and move in legal]
    branches = []
    for move, its in sorted(chosen, key=lambda entry: -len(entry[1]))[:MOST_BRANCHES]:
        after = line.copy()
        after.push(move)
        branches.append(_branch(shortened(move_text(line, move)), its, after, depth + 1, fewest))
    mean = sum(score for _, score in games) / len(games)
    return {"move": text, "games": len(games), "score": rounded(mean), "moves": branches}


def search_values(store: GameStore) -> Bins | None:
    """Calibration of the search's root values in the newest games; None where no search made them."""
    q_parts, result_parts = [], []
    left = NEWEST_GAMES
    for view in reversed(store.shards):
        if left > 0 and view.search is not None:
            first = max(0, view.num_games - left)
            offset = view.search.ply_offset
            begin, end = int(offset[first]), int(offset[-1])
            lengths = np.diff(offset)[first:]
            results = np.where(view.result_valid, view.result, 0)[first:].astype(np.float64)
            # Every game of self-play begins at the start.
            games = range(first, view.num_games)
            by_first = [
                first_player_moves(
                    store.manifest.game_now,
                    view.moves[view.moves_offset[game] : view.moves_offset[game + 1]].tolist(),
                )
                for game, length in zip(games, lengths, strict=True)
                if length
            ]
            signs = np.where(np.concatenate([np.zeros(0, np.bool_), *by_first]), 1, -1)
            result_parts.append(np.repeat(results, lengths) * signs)
            has_search = view.search.visits.values[begin:end] > 0  # not the moves of random openings
            q_parts.append(np.where(has_search, view.search.root_q.values[begin:end], np.nan))
        left -= view.num_games
    if not q_parts:
        return None
    value, result = (np.concatenate(parts).astype(np.float64) for parts in (q_parts, result_parts))
    known = np.isfinite(value)
    if not known.any():
        return None
    predicted, actual = (value[known] + 1) / 2, (result[known] + 1) / 2
    place = np.clip((predicted * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
    count = np.bincount(place, minlength=NUM_BINS)
    means = [np.bincount(place, row, NUM_BINS) / np.maximum(count, 1) for row in (predicted, actual)]
    return Bins(tuple(count.tolist()), tuple(means[0].tolist()), tuple(means[1].tolist()))
