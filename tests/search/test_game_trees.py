"""Trees of many games side by side: the same ones as those of a TreeSearch each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import alphazero._core as _core
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line
from alphazero.search.game_trees import GameTrees
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings

SETTINGS = TreeSettings(cache_mb=1)
LIMITS = SearchLimits(nodes=150)


class Answer:
    """An evaluation that is there at once."""

    def __init__(
        self, legal_logits: npt.NDArray[np.float32], wdl: npt.NDArray[np.float32], asked: list[Answer]
    ) -> None:
        self.legal_logits, self.wdl, self.asked = legal_logits, wdl, asked

    def result(self) -> Answer:
        """As a Pending."""
        self.asked.remove(self)
        return self


class MadeUp:
    """An evaluation of each position that depends on nothing else."""

    batch_size = 24

    def __init__(self, batches_ahead: int = 1) -> None:
        self.batches_ahead = batches_ahead
        self.sizes: list[int] = []
        self.asked: list[Answer] = []  # whose result was not taken, as many as a NetworkEvaluator allows

    def submit(
        self,
        packed: npt.NDArray[np.uint8],
        legal_index: npt.NDArray[np.int32],
        legal_offset: npt.NDArray[np.int32],
    ) -> Answer:
        """As an Evaluator."""
        assert 0 < len(packed) <= self.batch_size and legal_offset[-1] == len(legal_index)
        self.sizes.append(len(packed))
        seeds = packed.astype(np.int64) @ (np.arange(packed.shape[1]) ** 2 + 1) % 99991
        rows = np.repeat(seeds, np.diff(legal_offset))
        win, loss = 0.4 + 0.4 * np.sin(seeds), np.full(len(seeds), 0.2)
        answer = Answer(
            np.sin(rows * 0.37 + legal_index).astype(np.float32),
            np.stack([win, 1 - win - loss, loss], axis=1).astype(np.float32),
            self.asked,
        )
        self.asked.append(answer)
        assert len(self.asked) <= self.batches_ahead
        return answer


def lines_of(game: str) -> dict[int, Line]:
    lines = {7: make_line(game), 3: make_line(game), 5: make_line(game)}
    for number, line in lines.items():
        for _ in range(number % 4):
            line.push(line.legal()[number % len(line.legal())])
    return lines


@pytest.mark.parametrize("batches_ahead", [1, 2])
@pytest.mark.parametrize("game", ["chess", "connect4"])
def test_trees_side_by_side_are_those_of_a_tree_search(game: str, batches_ahead: int) -> None:
    together = MadeUp(batches_ahead)
    trees = GameTrees(game, together, SETTINGS)
    alone = {number: TreeSearch(game, MadeUp(2), SETTINGS) for number in lines_of(game)}
    lines = lines_of(game)
    try:
        for _ in range(3):
            views = trees.search(lines, LIMITS)
            for (number, line), view in zip(list(lines.items()), views, strict=True):
                alone[number].set_line(line)
                found = alone[number].search(LIMITS)
                assert found.best is not None and view.moves[0].move == found.best.move
                if found.proven is not None:  # a TreeSearch does not wait for batches on their way then
                    del lines[number]
                    continue
                assert [(move.move, move.visits, move.q) for move in view.moves] == [
                    (move.move, move.visits, move.q) for move in found.moves
                ]
                assert (view.nodes, view.tree_nodes) == (found.nodes, found.tree_nodes)
                line.push(view.moves[0].move)
                line.push(line.legal()[-1])
        assert lines
    finally:
        for search in alone.values():
            search.close()
    assert max(together.sizes) > LIMITS.most_nodes // 8 // 2  # leaves of several trees in a batch


def test_a_game_that_is_left_begins_anew() -> None:
    trees = GameTrees("connect4", MadeUp(), SETTINGS)
    line = make_line("connect4")
    trees.search({1: line}, LIMITS)
    (again,) = trees.search({1: line}, LIMITS)
    assert again.evaluations == 0  # the tree is kept, with all of its visits
    trees.leave(1)
    (anew,) = trees.search({1: line}, LIMITS)
    assert anew.evaluations > 0


def test_more_trees_than_a_few_batches_hold() -> None:
    lines = {number: make_line("chess") for number in range(60)}
    evaluator = MadeUp()
    views = GameTrees("chess", evaluator, SETTINGS).search(lines, LIMITS)
    assert {view.nodes for view in views} == {LIMITS.nodes} and not evaluator.asked
    assert len({tuple((move.move, move.visits) for move in view.moves) for view in views}) == 1
    assert sum(evaluator.sizes) / len(evaluator.sizes) > 0.7 * evaluator.batch_size


def test_a_watcher_sees_each_tree_grow_to_what_is_found() -> None:
    lines, seen = lines_of("chess"), dict[int, list[tuple[int, int]]]()

    def watch(number: int, view: _core.SearchView) -> None:
        seen.setdefault(number, []).append((view.nodes, view.moves[0].move))

    views = GameTrees("chess", MadeUp(), SETTINGS).search(lines, LIMITS, watch)
    unwatched = GameTrees("chess", MadeUp(), SETTINGS).search(lines, LIMITS)
    for number, view, other in zip(lines, views, unwatched, strict=True):
        nodes = [visits for visits, _ in seen[number]]
        assert nodes[0] == 1 and nodes == sorted(nodes) and len(nodes) > 10
        assert seen[number][-1] == (view.nodes, view.moves[0].move)
        assert [move.visits for move in view.moves] == [move.visits for move in other.moves]
