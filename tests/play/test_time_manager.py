"""Budgets from clocks, and stopping before they are spent."""

import dataclasses

import pytest

from alphazero.play.uci.protocol import Go
from alphazero.play.uci.search import Budget, budget_of, is_time_over
from alphazero.search.snapshot import MoveReport, Snapshot


def seen(*visits: int, q: tuple[float, ...] = (), playouts: int = 1000, seconds: float = 1.0) -> Snapshot:
    """A search with a move for each number of visits."""
    moves = tuple(
        MoveReport(
            i,
            str(i),
            i,
            0.1,
            n,
            0.1,
            (q or (0.0,) * len(visits))[i],
            (0, 1, 0),
            None,
            None,
            (),
            (),
            "chess",
            "",
        )
        for i, n in enumerate(visits)
    )
    return Snapshot(
        nodes=sum(visits) + 1,
        playouts=playouts,
        evaluations=0,
        cache_hits=0,
        seconds=seconds,
        depth=1,
        seldepth=1,
        q=0.0,
        wdl=(0, 1, 0),
        proven=None,
        plies=None,
        is_done=False,
        is_full=False,
        hashfull=0,
        tree_nodes=0,
        tree_bytes=0,
        moves=moves,
        position="",
    )


@pytest.mark.parametrize("white", [True, False])
def test_a_budget_is_never_more_than_the_clock_allows(white: bool) -> None:
    for clock in (0, 1, 40, 100, 1000, 60_000, 5_400_000):
        for increment in (0, 50, 30_000):
            for moves in (None, 1, 2, 40):
                go = Go(wtime=clock, btime=clock, winc=increment, binc=increment, movestogo=moves)
                budget = budget_of(go, white, 30)
                assert budget.is_clock and 0 < budget.planned_s <= budget.most_s
                assert budget.most_s <= max(0.001, (clock - 30) / 1000)


def test_one_second_with_increments_of_a_twentieth_lasts() -> None:
    clock, most = 1000.0, 1000.0
    for _ in range(300):
        budget = budget_of(Go(wtime=int(clock), winc=50, btime=1, binc=0), True, 30)
        clock += 50 - 1000 * budget.most_s - 20  # the way to the GUI takes its time
        most = min(most, clock)
    assert most > 0


def test_a_side_without_a_clock_has_the_other_ones() -> None:
    assert budget_of(Go(wtime=100), False, 0) == budget_of(Go(btime=100), False, 0)
    assert budget_of(Go(nodes=3), True, 0) == Budget()
    assert budget_of(Go(infinite=True, wtime=5), True, 0) == Budget()


def test_a_move_time_is_met_but_for_the_overhead() -> None:
    assert budget_of(Go(movetime=500), True, 30) == Budget(0.47, 0.47)
    assert budget_of(Go(movetime=1), True, 30) == Budget(0.001, 0.001)


def test_a_move_that_cannot_be_overtaken_is_played_at_once() -> None:
    budget = Budget(2.0, 4.0, is_clock=True)
    # 1,000 playouts a second: within the second that is left 750 more, as lc0's factor of 1.33 has it.
    assert is_time_over(budget, seen(900, 100), 1.0, prunes=True)
    assert not is_time_over(budget, seen(700, 100), 1.0, prunes=True)
    assert not is_time_over(budget, seen(900, 100), 1.0, prunes=False)
    assert is_time_over(budget, seen(5), 0.1, prunes=True)  # the only move
    fixed = Budget(2.0, 2.0)
    assert not is_time_over(fixed, seen(900, 100), 1.0, prunes=True)
    assert is_time_over(fixed, seen(900, 100), 2.0, prunes=True)


def test_moves_proven_lost_are_no_rivals() -> None:
    search = seen(10, 9)
    lost = dataclasses.replace(search.moves[1], proven=-1, plies=2)
    search = dataclasses.replace(search, moves=(search.moves[0], lost))
    assert is_time_over(Budget(2.0, 4.0, is_clock=True), search, 0.0, prunes=True)


def test_a_budget_is_extended_where_another_move_has_the_better_value() -> None:
    budget = Budget(2.0, 4.0, is_clock=True)
    assert is_time_over(budget, seen(500, 400, q=(0.2, 0.1)), 2.0, prunes=True)
    unsure = seen(500, 400, q=(0.1, 0.2))
    assert not is_time_over(budget, unsure, 2.0, prunes=True)
    assert is_time_over(budget, unsure, 4.0, prunes=True)
    assert is_time_over(budget, seen(500, 4, q=(0.1, 0.2)), 2.0, prunes=True)  # too few visits for a rival
