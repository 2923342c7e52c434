"""A search under other conditions than the one before it finds what a new engine finds."""

import re

import pytest

from alphazero.games.registry import make_line
from alphazero.search.tree_search import SearchLimits, TreeSearch, TreeSettings
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator
from tests.support.uci.driving import DrivenEngine

# Every walk knows all before it, so that evaluations from the cache change nothing.
ONE_BY_ONE = {"MinibatchSize": "1", "BatchesInFlight": "1"}
HANGING = "position fen 4k3/8/8/7q/6P1/8/8/4K3 w - - 0 1"  # the queen can be taken
NEAR_TABLES = "position fen 8/8/8/4k3/8/3r4/8/R2RK3 w - - 0 1"
IN_TABLES = "position fen k7/8/1K6/8/8/8/8/7R w - - 0 1"


def last_report(engine: DrivenEngine, *lines: str) -> list[str]:
    """The reports after the last info of a search and its answer, less what time decides."""
    engine.send(*lines)
    told = engine.until("bestmove")
    kept = [line for line in told if " score " in line or line.startswith("bestmove")]
    return [re.sub(r" (time|nps|hashfull|tbhits) \d+", "", line) for line in kept]


@pytest.mark.parametrize(
    ("position", "before", "then"),
    [
        ("position startpos", ["go nodes 200 searchmoves a2a3"], ["go nodes 200"]),
        (HANGING, ["go nodes 200 searchmoves e1f1"], ["go nodes 200"]),
        (HANGING, ["go nodes 400"], ["go nodes 200 searchmoves e1f1"]),
        (HANGING, ["go nodes 400"], ["go nodes 1 searchmoves e1f1"]),
        ("position startpos", ["go nodes 200 searchmoves a2a3 h2h3"], ["go nodes 100 searchmoves a2a3"]),
        ("position startpos", ["go nodes 200"], ["setoption name CPuct value 3", "go nodes 100"]),
        ("position startpos", ["go nodes 200"], ["setoption name FpuReduction value 1", "go nodes 100"]),
        ("position startpos", ["go nodes 200"], ["setoption name PolicyTemperature value 2", "go nodes 9"]),
        ("position startpos", ["go nodes 200"], ["setoption name TwoFoldDraws value false", "go nodes 9"]),
        ("position startpos", ["go nodes 200"], ["setoption name WeightsFile value other", "go nodes 9"]),
    ],
)
def test_no_visit_of_a_search_under_other_conditions_counts(
    position: str, before: list[str], then: list[str]
) -> None:
    with DrivenEngine(**ONE_BY_ONE) as engine:
        last_report(engine, position, *before)
        found = last_report(engine, *then)
    with DrivenEngine(**ONE_BY_ONE) as engine:
        assert found == last_report(engine, position, *then)


@pytest.mark.skipif(not has_tables(), reason=WHY_NOT)
@pytest.mark.parametrize(
    ("position", "before", "then"),
    [
        (NEAR_TABLES, [], [f"setoption name SyzygyPath value {SYZYGY}"]),
        (NEAR_TABLES, [f"setoption name SyzygyPath value {SYZYGY}"], ["setoption name SyzygyPath value"]),
        (IN_TABLES, [], [f"setoption name SyzygyPath value {SYZYGY}"]),
        (
            IN_TABLES,
            [f"setoption name SyzygyPath value {SYZYGY}"],
            [f"setoption name SyzygyPath value {SYZYGY}", "setoption name SyzygyFastPlay value true"],
        ),
    ],
)
def test_nor_one_with_other_tables(position: str, before: list[str], then: list[str]) -> None:
    with DrivenEngine(**ONE_BY_ONE) as engine:
        last_report(engine, *before, position, "go nodes 100")
        found = last_report(engine, *then, "go nodes 60")
    with DrivenEngine(**ONE_BY_ONE) as engine:
        assert found == last_report(engine, position, *then, "go nodes 60")


def test_the_same_moves_in_another_order_and_later_positions_keep_the_tree() -> None:
    with DrivenEngine() as engine:
        last_report(engine, "position startpos", "go nodes 300 searchmoves e2e4 d2d4")
        *_, info, _ = last_report(engine, "go nodes 2 searchmoves d2d4 e2e4 d2d4")
        assert " nodes 300 " in info
        move = info.split(" pv ")[1].split()
        *_, info, _ = last_report(engine, f"position startpos moves {' '.join(move[:2])}", "go nodes 1")
        assert int(info.split(" nodes ")[1].split()[0]) > 1  # all moves were searched there


def test_a_mate_that_may_not_be_searched_proves_nothing() -> None:
    settings = TreeSettings(minibatch_size=1, in_flight=1)
    search = TreeSearch("chess", MadeUpEvaluator("chess", 8), settings)
    line = make_line("chess", "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
    for first in ((), (line.text_to_move("a1a8"),)):
        search.set_line(line)
        assert search.search(SearchLimits(nodes=50, moves=first)).proven == 1
        search.set_line(line)
        found = search.search(SearchLimits(nodes=50, moves=(line.text_to_move("g1h1"),)))
        assert found.nodes == 50 and found.proven is None and -1 < found.q < 1
    search.close()
