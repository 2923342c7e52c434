"""The openings of the newest self-play games as a tree, and the calibration of the search's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from alphazero.base.text import shortened
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.store import GameStore
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
    games = [
        (game.lists["moves"][:DEPTH].tolist(), (game.values["result"] + 1) / 2)
        for game in _newest(store)
        if "start_fen" not in game.values and "result" in game.values
    ]
    if not games:
        return None
    fewest = max(FEWEST_GAMES, SMALLEST_SHARE * len(games))
    return _branch("", games, make_line(store.manifest.game_now), 0, fewest)


def _newest(store: GameStore) -> Iterator[GameRow]:
    return games_of(store, max(0, store.num_games - NEWEST_GAMES))


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
    values, results = [np.zeros(0)], [np.zeros(0)]
    for game in _newest(store):
        if game.is_searched:
            has_search = game.lists["visits"] > 0  # not the moves of random openings
            is_first = first_player_moves(store.manifest.game_now, game.lists["moves"].tolist())[has_search]
            values.append(game.lists["root_q"][has_search])
            results.append(np.where(is_first, 1.0, -1.0) * game.values.get("result", 0))
    predicted, actual = ((np.concatenate(parts) + 1) / 2 for parts in (values, results))
    if not len(predicted):
        return None
    bins = np.clip((predicted * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
    count = np.bincount(bins, minlength=NUM_BINS)
    means = [np.bincount(bins, row, NUM_BINS) / np.maximum(count, 1) for row in (predicted, actual)]
    return Bins(tuple(count.tolist()), tuple(means[0].tolist()), tuple(means[1].tolist()))
