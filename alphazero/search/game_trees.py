"""The engine's trees side by side, each the same as that of a TreeSearch: their leaves share batches.

A Forest has trees that come and go; GameTrees keeps the tree of each of many games while the game lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

import alphazero._core as _core
from alphazero.games.core_types import GameSearch, Leaves, Line
from alphazero.games.registry import get_game
from alphazero.search.batched import Pending, PoolEvaluator
from alphazero.search.tree_search import NUM_SLOTS, SearchLimits, TreeSettings, is_reached, most_leaves

Watch: TypeAlias = "Callable[[_core.SearchView], None]"


@dataclass(eq=False)
class Growth:
    """A tree that grows to a limit. waiting: its batches on their way.

    watch: called with its view after each of its batches.
    """

    tree: GameSearch
    limits: SearchLimits
    watch: Watch | None = None
    free: list[int] = field(default_factory=lambda: list(range(NUM_SLOTS)))
    waiting: int = 0


@dataclass(frozen=True)
class _Batch:
    """Leaves of one tree, which wait for the network. slot: where the tree keeps them."""

    growth: Growth
    slot: int
    leaves: Leaves


class Forest:
    """Trees that come and go, and grow side by side.

    The order of a tree's walks is that of a TreeSearch, whatever grows beside it: the tree is the same one.
    """

    def __init__(self, evaluator: PoolEvaluator, settings: TreeSettings) -> None:
        self._evaluator = evaluator
        self._settings = settings
        self._gathered: deque[_Batch] = deque()
        self._asked: deque[tuple[list[_Batch], Pending]] = deque()
        self._done: list[Growth] = []

    def plant(self, tree: GameSearch, limits: SearchLimits, watch: Watch | None = None) -> Growth:
        """Let a tree grow whose search has begun, to a limit in nodes."""
        growth = Growth(tree, limits, watch)
        self._gather(growth)
        return growth

    def grow(self) -> list[Growth]:
        """Evaluate the oldest leaves, a batch; the trees that have reached their limits."""
        while len(self._asked) < self._evaluator.batches_ahead and self._submit():
            pass
        if self._asked:
            self._take(*self._asked.popleft())
        done, self._done = self._done, []
        return done

    def _gather(self, growth: Growth) -> None:
        """Fill the free slots as TreeSearch does."""
        in_flight = min(self._settings.in_flight, NUM_SLOTS)
        while growth.waiting < in_flight and not is_reached(growth.tree, growth.limits):
            before = growth.tree.progress()
            most = most_leaves(before.nodes, self._settings, self._evaluator)
            leaves = growth.tree.gather(growth.free[0], most, growth.limits.most_nodes)
            if len(leaves[0]):
                self._gathered.append(_Batch(growth, growth.free.pop(0), leaves))
                growth.waiting += 1
            elif growth.waiting or growth.tree.progress().playouts == before.playouts:
                break
        if not growth.waiting:
            self._done.append(growth)

    def _submit(self) -> bool:
        """Ask for the oldest batches, as many as fit into one of the evaluator; False where none waits."""
        together: list[_Batch] = []
        rows = 0
        while self._gathered:
            rows += len(self._gathered[0].leaves[0])
            if rows > self._evaluator.batch_size:
                break
            together.append(self._gathered.popleft())
        if together:
            asked = self._evaluator.submit(*_joined([each.leaves for each in together]))
            self._asked.append((together, asked))
        return bool(together)

    def _take(self, together: Sequence[_Batch], asked: Pending) -> None:
        evaluation = asked.result()
        row = logit = 0
        for each in together:
            packed, legal_index, _ = each.leaves
            logits = evaluation.legal_logits[logit : logit + len(legal_index)]
            wdl = evaluation.wdl[row : row + len(packed)]
            row, logit = row + len(packed), logit + len(legal_index)
            each.growth.tree.apply(each.slot, logits, wdl)
            each.growth.free.append(each.slot)
            each.growth.waiting -= 1
            if each.growth.watch is not None:
                each.growth.watch(each.growth.tree.view(0))
            self._gather(each.growth)


class GameTrees:
    """TreeSearch for many games at once: the same trees, without a thread for each."""

    def __init__(self, game: str, evaluator: PoolEvaluator, settings: TreeSettings) -> None:
        self._new_tree = get_game(game).core.game_search
        self._forest = Forest(evaluator, settings)
        self._settings = settings
        self._trees: dict[int, GameSearch] = {}

    def search(
        self,
        lines: Mapping[int, Line],
        limits: SearchLimits,
        watch: Callable[[int, _core.SearchView], None] | None = None,
    ) -> list[_core.SearchView]:
        """Search the end of each game's line, to a limit in nodes; the best move of each view comes first.

        watch: called with a game's number and view after each of its batches.
        """
        for number, line in lines.items():
            if number not in self._trees:
                self._trees[number] = self._new_tree(self._settings.for_core())
            self._trees[number].set_line(line)
            self._trees[number].begin(limits.moves)
            watch_own = None if watch is None else partial(watch, number)
            self._forest.plant(self._trees[number], limits, watch_own)
        left = len(lines)
        while left:
            left -= len(self._forest.grow())
        return [self._trees[number].view(0) for number in lines]

    def leave(self, number: int) -> None:
        """Forget the tree of a game that is over."""
        self._trees.pop(number, None)


def _joined(batches: Sequence[Leaves]) -> Leaves:
    """Several batches as one."""
    counts = np.concatenate([np.diff(offset) for _, _, offset in batches])
    return (
        np.concatenate([packed for packed, _, _ in batches]),
        np.concatenate([legal_index for _, legal_index, _ in batches]),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
    )
