"""Positions searched side by side, each once: what a match, an analysis or a measurement asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alphazero import _core
from alphazero.games.registry import Line
from alphazero.search.batched import NUM_GROUPS, Evaluator, run_pool

_LINE_SEARCHES: dict[type, Any] = {
    _core.ChessLine: _core.ChessLineSearch,
    _core.Connect4Line: _core.Connect4LineSearch,
    _core.TicTacToeLine: _core.TicTacToeLineSearch,
}


def search_lines(
    lines: Sequence[Line],
    evaluator: Evaluator,
    settings: _core.SearchSettings,
    *,
    num_threads: int = 1,
    after_batch: Callable[[], None] = lambda: None,
) -> list[_core.SearchResult]:
    """The search of the position at the end of each line, in this order; no noise, the best move.

    The lines are of one game, and their games not over (ValueError). A batch holds the leaves of up to
    evaluator.batch_size / settings.leaves trees. The results do not depend on the number of threads.
    after_batch is called after each batch.
    """
    if not lines:
        return []
    leaves = settings.leaves if settings.algorithm is _core.SearchAlgorithm.PUCT else 1
    slots = max(1, evaluator.batch_size // leaves)
    search = _LINE_SEARCHES[type(lines[0])](list(lines), settings, slots, NUM_GROUPS, num_threads)

    def go_on(size: int) -> bool:
        after_batch()
        return True

    run_pool(search, evaluator, go_on)
    found: list[_core.SearchResult] = search.found()
    return found
