"""The reference itself against numbers worked out by hand from the papers' formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support.search.driving import VariedEvaluator, line_of, sample_noise, search_to_end
from tests.support.search.reference import ReferenceSearch
from tests.support.search.reference_rules import (
    Edge,
    Node,
    Settings,
    choose_gumbel_inner,
    choose_puct,
    completed_values,
    halving_schedule,
    pruned_visits,
    softmax,
)

PUCT = Settings(simulations=200, c_init=1.25, proofs=False)


def node_of(value: float, *edges: tuple[float, int, float]) -> Node:
    """An evaluated node; edges as (prior, visits, value sum)."""
    made = [
        Edge(number, number, prior, visits, 0, total) for number, (prior, visits, total) in enumerate(edges)
    ]
    return Node(made, evaluated=True, value=value)


@pytest.mark.parametrize(
    ("considered", "num_legal", "simulations", "wanted"),
    [
        # 4 moves, log2 = 2 halvings: floor(16 / (2 * 4)) = 2 rounds of 4, floor(16 / (2 * 2)) = 4 of 2
        (4, 30, 16, [0] * 4 + [1] * 4 + [2, 2, 3, 3, 4, 4, 5, 5]),
        # 3 moves: ceil(log2 3) = 2, floor(10 / 6) = 1 round of 3, floor(10 / 4) = 2 of 2, ...
        (16, 3, 10, [0, 0, 0, 1, 1, 2, 2, 3, 3, 4]),
        # too few simulations for one round
        (16, 30, 5, [0, 0, 0, 0, 0]),
        (8, 30, 14, [0] * 8 + [1] * 4 + [2, 2]),
        (2, 2, 5, [0, 0, 1, 1, 2]),
        (1, 30, 4, [0, 1, 2, 3]),
        (16, 1, 3, [0, 1, 2]),
    ],
)
def test_schedule_is_sequential_halving(
    considered: int, num_legal: int, simulations: int, wanted: list[int]
) -> None:
    assert halving_schedule(considered, num_legal, simulations) == wanted


def test_mixed_value_is_the_paper_s() -> None:
    # Danihelka et al. 2022, appendix D: (v + S / sum(P walked) * sum(P q walked)) / (1 + S)
    node = node_of(0.2, (0.5, 3, 1.5), (0.25, 1, -0.5), (0.25, 0, 0.0))
    mix = (0.2 + 4 / 0.75 * (0.5 * 0.5 + 0.25 * -0.5)) / 5
    assert completed_values(node) == pytest.approx([0.5, -0.5, mix])
    assert mix == pytest.approx(0.1733333333)


def test_completed_value_is_the_network_s_where_nothing_was_walked() -> None:
    assert completed_values(node_of(-0.3, (0.9, 0, 0.0), (0.1, 0, 0.0))) == [-0.3, -0.3]


def test_puct_weighs_value_and_prior_as_the_formula_does() -> None:
    # N = 1: c = 1.25 + log(19654 / 19652); 0.5 + c * 0.6 / 2 = 0.875 against 0.25 + c * 0.4 = 0.75
    assert choose_puct(node_of(0.0, (0.6, 1, 0.5), (0.4, 0, 0.0)), PUCT, True, False) == 0
    # N = 2: 0.25 + c * sqrt(2) * 0.6 / 3 = 0.604 against 1 / 6 + c * sqrt(2) * 0.4 = 0.874
    assert choose_puct(node_of(0.0, (0.6, 2, 0.5), (0.4, 0, 0.0)), PUCT, True, False) == 1
    # with an urgency 0.4 * sqrt(0.6) = 0.310 lower it is 0.564: the first again
    assert choose_puct(
        node_of(0.0, (0.6, 2, 0.5), (0.4, 0, 0.0)), replace(PUCT, root_fpu_reduction=0.4), True, False
    ) == 0  # fmt: skip


def test_virtual_losses_count_as_lost_walks() -> None:
    node = node_of(0.0, (0.5, 1, 0.9), (0.5, 1, 0.2))
    assert choose_puct(node, PUCT, False, False) == 0
    node.edges[0].waiting = 1  # (0.9 - 1) / 2 = -0.05 and 1.25 * sqrt(3) * 0.5 / 3, against 0.2 and ... / 2
    assert choose_puct(node, PUCT, False, False) == 1


def test_forced_playouts_come_first_and_are_pruned_again() -> None:
    # N = 100, k = 2: sqrt(2 * 0.08 * 100) = 4; an edge of prior 0.08 with 3 walks is forced, with 4 it is not
    settings = replace(PUCT, forced_playouts=2.0)
    node = node_of(0.0, (0.92, 97, 48.5), (0.08, 3, -3.0))
    assert choose_puct(node, settings, True, True) == 1
    assert choose_puct(node, settings, True, False) == 0
    node = node_of(0.0, (0.92, 96, 48.0), (0.08, 4, -4.0))
    assert choose_puct(node, settings, True, True) == 0
    # T = 0.5 + 1.255 * 10 * 0.92 / 97 = 0.619, and the bad edge's -1 + 1.004 / (1 + x) is below for all x
    assert pruned_visits(node, settings, [0, 1]) == [96, 0]
    # an edge as good as the best: 0.5 + 1.004 / (1 + x) < 0.5 + 0.127 from x = 7 on; 10 - 4 would be 6
    node = node_of(0.0, (0.92, 90, 45.0), (0.08, 10, 5.0))
    target = 0.5 + exploration_by_hand(100, 0.92, 90)
    assert 0.5 + exploration_by_hand(100, 0.08, 6) > target > 0.5 + exploration_by_hand(100, 0.08, 7)
    assert pruned_visits(node, settings, [0, 1]) == [90, 7]


def exploration_by_hand(total: int, prior: float, visits: int) -> float:
    return (math.log((total + 19653) / 19652) + 1.25) * prior * math.sqrt(total) / (1 + visits)


def test_gumbel_below_the_root_evens_out_visits() -> None:
    # completed values are equal, so p = P = (0.5, 0.3, 0.2): 0.5 - 2/4, 0.3 - 1/4, 0.2 - 0/4
    node = node_of(0.1, (0.5, 2, 0.2), (0.3, 1, 0.1), (0.2, 0, 0.0))
    assert choose_gumbel_inner(node, Settings(algorithm="gumbel")) == 2
    node.edges[2].visits, node.edges[2].value_sum = 1, 0.1  # 0.5 - 2/5, 0.3 - 1/5, 0.2 - 1/5
    assert choose_gumbel_inner(node, Settings(algorithm="gumbel")) == 0


def test_softmax_bears_logits_far_apart() -> None:
    assert softmax([1000.0, 0.0, 1000.0]) == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("game", ["tictactoe", "connect4", "chess"])
@pytest.mark.parametrize("leaves", [1, 8])
def test_every_walk_into_a_child_ends_there_or_walks_on(game: str, leaves: int) -> None:
    settings = replace(PUCT, leaves=leaves)
    line = line_of(game)
    search = ReferenceSearch(settings)
    search.start(line, sample_noise(settings, len(line.legal()), 1))
    search_to_end(search, VariedEvaluator(1))
    tree = search.nodes()
    below = np.add.reduceat(np.append(tree["visits"], 0), tree["edge_offset"][:-1])
    assert below[0] == search.result(0, 0).visits == settings.simulations
    for number in range(1, len(tree["parent"])):
        walks = tree["visits"][tree["edge_offset"][tree["parent"][number]] + tree["parent_edge"][number]]
        if tree["proven"][number] == 2:
            assert walks == 1 + below[number]
        else:
            assert walks >= 1


@pytest.mark.parametrize(
    ("moves", "value"),
    [
        ("a3 c3 a1", -1),  # a2 must be blocked, then c1 threatens twice
        ("a3 c3 a1 a2", 1),
        ("b2 a3 c3 a1", 0),
        ("a3 b2 c1 a1 c3", -1),  # two threats, c2 and b3
    ],
)
def test_small_positions_are_proven(moves: str, value: int) -> None:
    settings = Settings(simulations=5000)
    line = line_of("tictactoe", None, moves)
    search = ReferenceSearch(settings)
    search.start(line, None)
    search_to_end(search, VariedEvaluator(2))
    result = search.result(0, 0)
    assert (result.proven, result.root_q, result.root_d) == (value, value, float(value == 0))
