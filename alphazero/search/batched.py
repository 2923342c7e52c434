"""Searches side by side, in groups that take turns: their leaves go to the network in batches.

Positions searched side by side, each once: what a match, an analysis or a measurement asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import alphazero._core as _core
from alphazero.base.errors import ConfigError
from alphazero.games.core_types import BatchEvaluation, Floats, Indices, Line, Pool, Positions
from alphazero.games.registry import get_game

# Shapes: B positions of a batch, N bytes of a packed position, K legal moves over all B positions.


class Pending(Protocol):
    """An evaluation in progress."""

    def result(self) -> BatchEvaluation: ...


class Evaluator(Protocol):
    """Evaluates up to batch_size positions at a time; network/inference/evaluator.py has one."""

    @property
    def batch_size(self) -> int: ...
    def submit(self, packed: Positions, legal_index: Indices, legal_offset: Indices) -> Pending:
        """Begin to evaluate packed u8 [B, N], legal_index i32 [K], legal_offset i32 [B + 1]."""
        ...


class PoolEvaluator(Evaluator, Protocol):
    """One for searches side by side."""

    @property
    def batches_ahead(self) -> int:
        """Batches that it pays to submit before the first one's result; 1 where submit evaluates at once."""
        ...


def num_trees(settings: _core.SearchSettings, batch_size: int) -> int:
    """How many trees a group has, so that all their leaves fit into a batch.

    Raises ConfigError where those of a single tree do not.
    """
    if settings.algorithm is not _core.SearchAlgorithm.PUCT:
        return batch_size
    if settings.leaves > batch_size:
        raise ConfigError(
            f"--leaves {settings.leaves}: expected at most {batch_size}, the positions of an evaluation",
            found_by_all_ranks=True,
        )
    return batch_size // settings.leaves


def run_pool(pool: Pool, evaluator: PoolEvaluator, after_batch: Callable[[int], bool]) -> bool:
    """Search and evaluate until nothing is left to do. The pool has evaluator.batches_ahead groups.

    Where there are several, the core searches one group's trees while the evaluator works at another's
    positions. With one, there are half as many trees, and their batches stay full for longer. after_batch is
    called with the number of positions of each batch; where it returns False, everything is left as it is.
    Returns True when all is done.
    """
    waiting: dict[int, tuple[Pending, int]] = {}

    def advance(group: int, logits: Floats | None = None, wdl: Floats | None = None) -> None:
        packed, legal_index, legal_offset = pool.step(group, logits, wdl)
        if len(packed):
            waiting[group] = evaluator.submit(packed, legal_index, legal_offset), len(packed)

    groups = range(evaluator.batches_ahead)
    for group in groups:
        advance(group)
    while waiting:
        for group in groups:
            if group not in waiting:
                continue
            pending, size = waiting.pop(group)
            evaluation = pending.result()
            if not after_batch(size):
                for pending, _ in waiting.values():
                    pending.result()  # the evaluator is free for others
                return False
            advance(group, evaluation.legal_logits, evaluation.wdl)
    return True


def search_lines(
    lines: Sequence[Line],
    evaluator: PoolEvaluator,
    settings: _core.SearchSettings,
    *,
    cache: _core.EvaluationCache | None = None,
    num_threads: int = 1,
    after_batch: Callable[[int], None] = lambda simulations: None,
) -> list[_core.SearchResult]:
    """The search of the position at the end of each line, in this order; no noise, the best move.

    The lines are of one game, and their games not over (ValueError). A batch holds the leaves of up to
    evaluator.batch_size / settings.leaves trees, and at least one (ConfigError). The results do not depend on
    the number of threads, nor on the cache: evaluations by the same weights, which are not requested again.
    after_batch gets the number of finished simulations of all lines after each batch.
    """
    if not lines:
        return []
    slots = num_trees(settings, evaluator.batch_size)
    search = get_game(lines[0].NAME).core.line_search(
        list(lines), settings, slots, evaluator.batches_ahead, num_threads, cache=cache
    )

    def go_on(size: int) -> bool:
        after_batch(search.simulations)
        return True

    run_pool(search, evaluator, go_on)
    return search.found()
