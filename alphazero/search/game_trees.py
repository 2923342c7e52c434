"""The engine's trees of many games: each is kept while its game lasts, and their leaves share batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import alphazero._core as _core
from alphazero.games.core_types import GameSearch, Leaves, Line
from alphazero.games.registry import get_game
from alphazero.search.batched import Evaluator
from alphazero.search.tree_search import NUM_SLOTS, SearchLimits, TreeSettings, is_reached, most_leaves


@dataclass
class _Growth:
    """A tree that grows to a limit, with its batches on their way to the network."""

    tree: GameSearch
    limits: SearchLimits
    free: list[int] = field(default_factory=lambda: list(range(NUM_SLOTS)))
    waiting: deque[tuple[int, Leaves]] = field(default_factory=deque)

    def gather(self, settings: TreeSettings, evaluator: Evaluator) -> None:
        """Fill the free slots as TreeSearch does, so that the tree is the same one."""
        in_flight = min(settings.in_flight, NUM_SLOTS)
        while len(self.waiting) < in_flight and not is_reached(self.tree, self.limits):
            before = self.tree.progress()
            most = most_leaves(before.nodes, settings, evaluator)
            leaves = self.tree.gather(self.free[0], most, self.limits.most_nodes)
            if len(leaves[0]):
                self.waiting.append((self.free.pop(0), leaves))
            elif self.waiting or self.tree.progress().playouts == before.playouts:
                return


class GameTrees:
    """TreeSearch for many games at once: the same trees, without a thread for each."""

    def __init__(self, game: str, evaluator: Evaluator, settings: TreeSettings) -> None:
        self._new_tree = get_game(game).core.game_search
        self._evaluator = evaluator
        self._settings = settings
        self._trees: dict[int, GameSearch] = {}

    def search(self, lines: Mapping[int, Line], limits: SearchLimits) -> list[_core.SearchView]:
        """Search the end of each game's line, to a limit in nodes; the best move of each view comes first."""
        for number, line in lines.items():
            if number not in self._trees:
                self._trees[number] = self._new_tree(self._settings.for_core())
            self._trees[number].set_line(line)
            self._trees[number].begin(limits.moves)
        growing = [_Growth(self._trees[number], limits) for number in lines]
        while growing:
            for each in growing:
                each.gather(self._settings, self._evaluator)
            growing = [each for each in growing if each.waiting]
            self._evaluate_oldest(growing)
        return [self._trees[number].view(0) for number in lines]

    def leave(self, number: int) -> None:
        """Forget the tree of a game that is over."""
        self._trees.pop(number, None)

    def _evaluate_oldest(self, growing: Sequence[_Growth]) -> None:
        """Evaluate and take the oldest batch of each tree, several in one where they fit."""
        pending = []
        begin = 0
        while begin < len(growing):
            end, rows = begin, 0
            while end < len(growing):
                rows += len(growing[end].waiting[0][1][0])
                if rows > self._evaluator.batch_size:
                    break
                end += 1
            together = growing[begin:end]
            joined = _joined([each.waiting[0][1] for each in together])
            pending.append((together, self._evaluator.submit(*joined)))
            begin = end
        for together, asked in pending:
            evaluation = asked.result()
            row = logit = 0
            for each in together:
                slot, (packed, legal_index, _) = each.waiting.popleft()
                rows, logits = len(packed), len(legal_index)
                each.tree.apply(
                    slot, evaluation.legal_logits[logit : logit + logits], evaluation.wdl[row : row + rows]
                )
                each.free.append(slot)
                row, logit = row + rows, logit + logits


def _joined(batches: Sequence[Leaves]) -> Leaves:
    """Several batches as one."""
    counts = np.concatenate([np.diff(offset) for _, _, offset in batches])
    return (
        np.concatenate([packed for packed, _, _ in batches]),
        np.concatenate([legal_index for _, legal_index, _ in batches]),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
    )
