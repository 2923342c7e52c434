"""Leaves of the tree of legal moves, counted by first move and in calls short enough to be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from alphazero.games.core_types import Line

MOST_DEPTH = 99
# Of one call into the core, which nothing can interrupt: less than a second where each side has 100 moves.
PLIES_PER_CALL = 4


def divide(
    line: Line, depth: int, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, int]]:
    """Each legal move with the leaves below it, `depth` plies from the line's end, until it is stopped."""
    for move in line.legal():
        child = line.copy()
        child.push(move)
        leaves = _count(child, depth - 1, is_stopped)
        if is_stopped():
            return
        yield move, leaves


def _count(line: Line, depth: int, is_stopped: Callable[[], bool]) -> int:
    """Leaves `depth` plies below the end of the line; too few once it is stopped."""
    if depth <= PLIES_PER_CALL:
        return line.perft(depth)
    total = 0
    for move in line.legal():
        if is_stopped():
            break
        child = line.copy()
        child.push(move)
        total += _count(child, depth - 1, is_stopped)
    return total
