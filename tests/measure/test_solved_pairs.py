"""Two players on the same positions, against numbers worked by hand."""

import pytest

from alphazero.measure.elo import PairedErrors, paired_errors


def test_errors_are_counted_by_who_makes_them():
    first = [True, True, False, False, True, False]
    second = [True, False, True, False, True, True]
    found = paired_errors(first, second)
    assert found == PairedErrors(positions=6, both=2, only_first=1, only_second=2)
    assert found.difference == pytest.approx(1 / 6)
    swapped = paired_errors(second, first)
    assert swapped.difference == -found.difference
    assert swapped.interval == pytest.approx((-found.interval[1], -found.interval[0]))


def test_the_interval_is_that_of_pairs():
    # (3 + 1) / 100 and (8 + 1) / 100: the middle is 0.05, the variance 0.1275 / 100, as
    # 0.04 + 0.09 - 0.05 ** 2 = 0.1275; its root is 0.0357071, and 1.959964 of those are 0.0699847.
    found = PairedErrors(positions=98, both=20, only_first=3, only_second=8)
    assert found.difference == pytest.approx(5 / 98)
    assert found.interval == pytest.approx((-0.0199847, 0.1199847), abs=1e-6)


def test_errors_of_both_do_not_widen_the_interval():
    few, many = PairedErrors(500, 0, 10, 4), PairedErrors(500, 300, 10, 4)
    assert few.interval == many.interval


def test_no_difference_seen_is_not_a_certain_one():
    low, high = PairedErrors(500, 30, 0, 0).interval
    assert low == -high and 0.003 < high < 0.007  # 1.96 * sqrt(2 / 502 / 502) = 0.0055


def test_the_interval_stays_within_what_is_possible():
    assert PairedErrors(2, 0, 0, 2).interval[1] == 1.0


def test_other_positions_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        paired_errors([True, False], [True])
