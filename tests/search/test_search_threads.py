"""Threads of the search change its speed alone: the same leaves in the same order, the same numbers."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from alphazero.games.core_types import BatchEvaluation, Line
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases
from alphazero.search.snapshot import Snapshot
from alphazero.search.tables import SearchTables
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables
from tests.support.search.driving import line_of

MIDDLE_GAME = "r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2QK2R w KQ - 0 9"
MATES = "5rk1/5ppp/8/8/8/5Q2/5PPP/3R2K1 w - - 0 1"
ROOKS = "8/5pk1/6p1/8/3R4/6PP/5PK1/2r5 w - - 0 40"
PAWNS = "8/8/4k3/8/2p5/8/1PP1K3/8 w - - 0 1"


class Answer:
    """An evaluation that is there at once."""

    def __init__(self, evaluation: BatchEvaluation) -> None:
        self.evaluation = evaluation

    def result(self) -> BatchEvaluation:
        return self.evaluation


class Noting:
    """Evaluates each position by a hash of its bytes, notes them, and stops the search at a batch."""

    batch_size = 256

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.stop_at = -1
        self.tree: TreeSearch | None = None

    def submit(self, packed: np.ndarray, legal_index: np.ndarray, legal_offset: np.ndarray) -> Answer:
        if len(self.asked) == self.stop_at:
            assert self.tree is not None
            self.tree.stop()
        self.asked.append(packed.tobytes())
        weights = np.arange(packed.shape[1], dtype=np.int64) ** 2 + 1
        seeds = packed.astype(np.int64) @ weights % 99991
        rows = np.repeat(seeds, np.diff(legal_offset))
        win, loss = 0.4 + 0.4 * np.sin(seeds), np.full(len(seeds), 0.2)
        wdl = np.stack([win, 1 - win - loss, loss], axis=1).astype(np.float32)
        logits = 2 * np.sin(rows * 0.37 + legal_index).astype(np.float32)
        return Answer(BatchEvaluation(logits, wdl))


def played(
    start: Line,
    settings: TreeSettings,
    *,
    nodes: int,
    plies: int = 3,
    tables: SearchTables | None = None,
    few_moves: bool = False,
    ends_early: bool = False,
    stop_at: int = -1,
) -> tuple[list[bytes], list[Snapshot]]:
    """What was asked of the network, and the searches of the first plies of a game on one tree."""
    evaluator = Noting()
    tree = TreeSearch(start.NAME, evaluator, settings, tables)
    evaluator.tree, evaluator.stop_at = tree, stop_at
    line, found = start.copy(), []
    for _ in range(plies):
        moves = tuple(line.legal()[::2]) if few_moves else ()
        tree.set_line(line)
        tree.search(SearchLimits(nodes=nodes, moves=moves))
        if ends_early:
            time.sleep(0.3)  # until the evaluations on their way are there
        found.append(replace(tree.snapshot(300), seconds=0.0))
        if found[-1].best is None:
            break
        line.push(found[-1].best.move)
    tree.close()
    tree.join()
    return evaluator.asked, found


@pytest.mark.parametrize("start", ["", MIDDLE_GAME, MATES, ROOKS, PAWNS])
@pytest.mark.parametrize(("size", "in_flight"), [(1, 1), (20, 2), (64, 4), (256, 1), (256, 2)])
def test_any_number_of_threads_makes_the_same_tree(start: str, size: int, in_flight: int) -> None:
    settings = TreeSettings(minibatch_size=size, in_flight=in_flight)
    line = make_line("chess", *([start] if start else []))
    alone = played(line, settings, nodes=1500)
    for threads in (2, 3):
        assert played(line, replace(settings, search_threads=threads), nodes=1500) == alone


@pytest.mark.parametrize("game", ["connect4", "othello", "tictactoe"])
def test_in_other_games_as_well(game: str) -> None:
    settings = TreeSettings(minibatch_size=32)
    alone = played(make_line(game), settings, nodes=2000)
    assert played(make_line(game), replace(settings, search_threads=2), nodes=2000) == alone


def test_with_few_moves_asked_for_and_with_a_stop_amid_batches() -> None:
    settings = TreeSettings(minibatch_size=64, in_flight=4)

    def searched(threads: int) -> tuple[list[bytes], list[Snapshot]]:
        several = replace(settings, search_threads=threads)
        line = make_line("chess", MIDDLE_GAME)
        return played(line, several, nodes=2000, few_moves=True, ends_early=True, stop_at=40)

    alone = searched(1)
    assert alone[1][0].nodes < 2000 and searched(2) == alone


def test_where_the_tree_is_full_or_the_cache_forgets() -> None:
    for settings in (TreeSettings(tree_mb=2), TreeSettings(cache_mb=1, two_fold_draws=False)):

        def searched(threads: int, settings: TreeSettings = settings) -> tuple[list[bytes], list[Snapshot]]:
            several = replace(settings, search_threads=threads)
            return played(make_line("chess", MATES), several, nodes=8000, ends_early=True)

        assert searched(2) == searched(1)


@pytest.mark.skipif(not has_tables(), reason=WHY_NOT)
def test_with_tablebases() -> None:
    line = line_of("chess", start="8/8/4k3/8/3r4/4P3/4K3/2R5 w - - 0 1", moves="")

    def searched(threads: int) -> tuple[list[bytes], list[Snapshot]]:
        tables = SearchTables(Tablebases(str(SYZYGY), "test"), print)
        settings = TreeSettings(minibatch_size=32, search_threads=threads)
        return played(line, settings, nodes=1500, tables=tables, ends_early=True)

    assert searched(2) == searched(1)
