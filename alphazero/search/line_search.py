"""Positions searched side by side, each once: what a match, an analysis or a measurement asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alphazero import _core
from alphazero.games.core_types import Line
from alphazero.games.registry import get_game
from alphazero.search.batched import PoolEvaluator, num_trees, run_pool


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
    the number of threads, nor on the cache: evaluations by the same weights, which are not asked for again.
    after_batch is told after each batch how many simulations of all lines are finished.
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
