"""Moves drawn by temperature: shares by hand, lc0's plan of temperatures, and what is never drawn."""

import random
from collections import Counter

import pytest

from alphazero.play.uci.search import chosen_move, temperature_at
from alphazero.search.snapshot import MoveReport, Snapshot


def searched(*moves: tuple[int, float, int | None]) -> Snapshot:
    """A search whose moves have these visits, values and proofs, the best first."""
    reports = tuple(
        MoveReport(
            number,
            str(number),
            number,
            0.1 * (number + 1),
            visits,
            0,
            q,
            (0, 1, 0),
            proven,
            None,
            (),
            (),
            "",
            "",
        )
        for number, (visits, q, proven) in enumerate(moves)
    )
    return Snapshot(10, 10, 10, 0, 0.1, 1, 1, 0.0, (0, 1, 0), None, None, False, False, 0, 0, 0, reports, "")


def drawn(found: Snapshot, temperature: float, cutoff: float = 100.0, times: int = 20_000) -> Counter[int]:
    source = random.Random(3)
    moves = (chosen_move(found, temperature, cutoff, source.random) for _ in range(times))
    return Counter(move.move for move in moves if move is not None)


@pytest.mark.parametrize(
    ("temperature", "shares"),
    [
        (1.0, (0.6, 0.3, 0.1)),
        (0.5, (36 / 46, 9 / 46, 1 / 46)),
        (0.01, (1, 0, 0)),
        (100.0, (0.335, 0.333, 0.331)),
    ],
)
def test_shares_are_visits_to_the_power_of_1_over_t(temperature: float, shares: tuple[float, ...]) -> None:
    found = drawn(searched((60, 0.1, None), (30, 0.1, None), (10, 0.1, None), (0, 0.0, None)), temperature)
    for move, share in enumerate(shares):
        assert found[move] / 20_000 == pytest.approx(share, abs=0.015)
    assert found[3] == 0


def test_without_visits_the_priors_count() -> None:
    found = drawn(searched((0, 0, None), (0, 0, None), (0, 0, None)), 1.0)  # priors 0.1, 0.2, 0.3
    assert [found[move] / 20_000 for move in range(3)] == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=0.015)


def test_temperature_0_plays_the_best_and_a_proof_decides() -> None:
    even = searched((50, 0, None), (50, 0, None))
    assert drawn(even, 0.0, times=100) == {0: 100}
    assert drawn(searched((5, 1.0, 1), (95, 0.5, None)), 2.0, times=100) == {0: 100}
    assert drawn(searched((50, 0, None), (60, -1.0, -1)), 2.0, times=100) == {0: 100}
    assert drawn(searched((50, -1.0, -1), (60, -1.0, -1)), 2.0, times=100) == {0: 100}
    assert chosen_move(searched(), 1.0, 100.0) is None


def test_a_move_that_lacks_more_winning_chance_than_the_cutoff_is_not_drawn() -> None:
    # Differences of Q of 0.1 and 0.3 are 5 and 15 points of winning chance.
    found = searched((50, 0.4, None), (50, 0.3, None), (50, 0.1, None))
    assert set(drawn(found, 1.0, 10.0)) == {0, 1}
    assert set(drawn(found, 1.0, 1.0)) == {0}
    assert set(drawn(found, 1.0, 20.0)) == {0, 1, 2}


def test_the_plan_of_temperatures_is_that_of_lc0() -> None:
    # Search::EnsureBestMoveKnown counts moves from 0 and takes TempEndgame, here 0, from cutoff_move - 1 on.
    assert [temperature_at(number, 1.0) for number in (1, 500)] == [1.0, 1.0]
    decaying = [temperature_at(number, 2.0, decay_moves=4) for number in range(1, 7)]
    assert decaying == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]
    assert [temperature_at(number, 0.7, cutoff_move=3) for number in range(1, 5)] == [0.7, 0.7, 0.0, 0.0]
