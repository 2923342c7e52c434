"""Positions of Connect Four solved in several threads, each with a solver of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from alphazero import _core

ITEMS_AHEAD = 8  # a thread

Item = TypeVar("Item")
Found = TypeVar("Found")


def solve_in_threads(
    solve: Callable[[_core.Connect4Solver, Item], Found],
    items: Iterable[Item],
    table_mib: int,
    num_threads: int,
) -> Generator[Found]:
    """`solve` of a solver and each of the items, in order; num_threads solvers share table_mib.

    Items are taken ITEMS_AHEAD a thread before their turn, so they may be without end. Closing the iterator
    gives up what has not begun.
    """
    solvers = threading.local()

    def solve_one(item: Item) -> Found:
        if not hasattr(solvers, "own"):
            solvers.own = _core.Connect4Solver(max(1, table_mib // num_threads))
        return solve(solvers.own, item)

    with ThreadPoolExecutor(num_threads) as pool:
        try:
            waiting: deque[Future[Found]] = deque()
            for item in items:
                waiting.append(pool.submit(solve_one, item))
                if len(waiting) == ITEMS_AHEAD * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
