"""How long to think: the budget of a move from the clocks, and when to stop before it is spent."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.search.snapshot import Snapshot
from alphazero.uci.protocol import Go

USUAL_MOVES_LEFT = 26  # of a game without movestogo; as early stops save some of each budget
LARGEST_SHARE = 0.25  # of the clock for one move, unless the clock is only for fewer than four
EXTENSION = 2.0  # of the budget, where the most visited move is not the one of the best value
SHORTEST_S = 0.001
# lc0's smart pruning: the playouts left are thought to be this many times fewer.
PRUNING_FACTOR = 1.33
PRUNING_AFTER_PLAYOUTS = 32  # before, the speed is not known
RIVAL_SHARE = 0.1  # of the visits of the most visited move that a rival must have


@dataclass(frozen=True)
class Budget:
    """Seconds for a move: as planned, and at most. None: no limit in time."""

    planned_s: float | None = None
    most_s: float | None = None
    is_clock: bool = False  # of a clock: time that is saved is of use later


def budget_of(go: Go, white_moves: bool, overhead_ms: int) -> Budget:
    """The budget of `go`'s limits for the side to move.

    overhead_ms of every move is lost on the way. A side without a clock of its own has the other one's.
    """
    if go.infinite:
        return Budget()
    if go.movetime is not None:
        seconds = max(SHORTEST_S, (go.movetime - overhead_ms) / 1000)
        return Budget(seconds, seconds)
    own, others = (go.wtime, go.btime) if white_moves else (go.btime, go.wtime)
    clock_ms = own if own is not None else others
    if clock_ms is None:
        return Budget()
    increment_ms = (go.winc if white_moves else go.binc) or 0
    moves = go.movestogo or USUAL_MOVES_LEFT
    left_ms = max(0, clock_ms - overhead_ms)
    planned_ms = (left_ms + (moves - 1) * max(0, increment_ms - overhead_ms)) / moves
    most_ms = min(left_ms * max(LARGEST_SHARE, 1 / moves), planned_ms * EXTENSION)
    planned_ms = min(planned_ms, most_ms)
    return Budget(max(SHORTEST_S, planned_ms / 1000), max(SHORTEST_S, most_ms / 1000), is_clock=True)


def is_time_over(budget: Budget, seen: Snapshot, seconds: float, *, prunes: bool) -> bool:
    """Whether to move now, `seconds` after the clock began to run.

    With `prunes`: also where no other move can still be visited more often, or there is only one.
    """
    if budget.planned_s is None or budget.most_s is None:
        return False
    if seconds >= budget.most_s:
        return True
    if not budget.is_clock:
        return False
    if seconds >= budget.planned_s:
        return not _has_rival(seen)
    return prunes and _is_decided(seen, budget.planned_s - seconds)


def _has_rival(seen: Snapshot) -> bool:
    """Whether a move of many visits has a better value than the most visited one."""
    if seen.best is None:
        return True
    best = seen.best
    return any(move.q > best.q and move.visits >= RIVAL_SHARE * best.visits for move in seen.moves[1:])


def _is_decided(seen: Snapshot, left_s: float) -> bool:
    if seen.best is None:
        return False
    rivals = [move for move in seen.moves[1:] if move.proven != -1]
    if not rivals:
        return True
    if seen.playouts < PRUNING_AFTER_PLAYOUTS or seen.seconds <= 0:
        return False
    playouts_left = left_s * seen.playouts / seen.seconds / PRUNING_FACTOR
    return seen.best.visits - max(move.visits for move in rivals) > playouts_left
