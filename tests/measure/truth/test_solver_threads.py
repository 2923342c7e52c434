"""Solvers side by side: what they find is in order."""

import pytest

import alphazero._core as _core
from alphazero.measure.truth.connect4 import read_sets, solve_in_threads
from alphazero.measure.truth.positions import ExactPosition


def outcome(solver: _core.Connect4Solver, position: ExactPosition) -> int:
    return solver.outcome(position.line)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_what_is_found_is_in_order(num_threads):
    """Those with few stones, which take longest, come first: with several threads they are done last."""
    sets = {entry.name: entry.positions for entry in read_sets()}
    positions = sets["middle-medium"][:3] + sets["end-easy"][:40]
    assert len({position.outcome for position in positions}) > 1
    found = list(solve_in_threads(outcome, positions, 16, num_threads))
    assert found == [position.outcome for position in positions]


def test_a_fault_reaches_who_asks():
    def solve(solver, item):
        if item == 3:
            raise ValueError("item 3")
        return item

    found = solve_in_threads(solve, range(10), 2, 2)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(found)
