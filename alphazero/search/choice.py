"""The move to play after a search: the best one, or one drawn by its visits, for games that differ."""

from __future__ import annotations

import random
from collections.abc import Callable

from alphazero.search.snapshot import MoveReport, Snapshot


def temperature_at(number: int, start: float, decay_moves: int = 0, cutoff_move: int = 0) -> float:
    """At the game's move `number`, 1 for the first, as in lc0 (src/search/classic/search.cc).

    start: Temperature, 0 plays the best move. decay_moves: TempDecayMoves, over which it falls to 0, 0: it
    stays. cutoff_move: TempCutoffMove, from which on the best move is played, 0: none.
    """
    if cutoff_move and number >= cutoff_move:
        return 0.0
    return start * max(0, decay_moves - (number - 1)) / decay_moves if decay_moves else start


def chosen_move(
    found: Snapshot, temperature: float, value_cutoff: float, draw: Callable[[], float] = random.random
) -> MoveReport | None:
    """The move to play: by visits ** (1 / temperature), by priors where there are no visits.

    value_cutoff: percentage points of the chance to win that a move may lack to the most visited one. A
    proven win is always played, and a move that is proven lost only if all are. draw: gives [0, 1).
    """
    if found.best is None or temperature <= 0 or found.best.proven in (1, -1):
        return found.best
    moves = [move for move in found.moves if move.proven != -1]
    most = max(moves, key=lambda move: move.visits)
    # lc0: "win probability" is (Q + 1) / 2, so that 100 points are a difference of 2 in Q.
    moves = [move for move in moves if move.q >= most.q - value_cutoff / 50]
    sizes = [move.visits / most.visits if most.visits else move.prior for move in moves]
    largest = max(sizes)
    weights = [(size / largest) ** (1 / temperature) if size else 0.0 for size in sizes]
    left = draw() * sum(weights)
    for move, weight in zip(moves, weights, strict=True):
        left -= weight
        if left < 0:
            return move
    return found.best
