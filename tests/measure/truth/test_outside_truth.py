"""Solved positions of games outside the core: which they are, who errs in them, what a run keeps."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from alphazero.games.outside.solvers import position_key, read_solver
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import make_line, read_game
from alphazero.measure.truth import outside as outside_truth
from alphazero.measure.truth.outside import (
    KnownPosition,
    positions_to_err_in,
    truth_of_run,
)
from alphazero.measure.truth.positions import find_errors
from alphazero.run.directory import RunDirectory
from tests.support.games.exact import exact_value
from tests.support.paths import REPOSITORY, SUPPORT

BOXES = f"{SUPPORT / 'games' / 'rules' / 'boxes.py'}:Boxes(size=2)"
NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=4)"
SOLVER = """
from functools import reduce
from operator import xor

def nim_sum(state):
    mover = 1 if state.player == 0 else -1
    return mover if reduce(xor, state.sizes) else -mover
"""


@pytest.fixture(scope="module")
def boxes() -> tuple[str, list[KnownPosition]]:
    game = read_game("--game", BOXES)
    return game, positions_to_err_in(game, "exact", 60)


def nothing(known: int, searched: int) -> None:
    pass


def state_after(game: str, moves: tuple[int, ...]) -> Any:
    line_rules = rules_of(game)
    state = line_rules.clone(line_rules.start) if line_rules.clone else line_rules.start.clone()
    for move in moves:
        state.apply_action(move)
    return state


@pytest.mark.slow
def test_positions_of_random_games_differ_and_have_the_values_of_plain_search(boxes) -> None:
    game, found = boxes
    assert len(found) == len({position_key(state_after(game, one.moves)) for one in found}) == 60
    assert len({len(one.moves) for one in found}) >= 6 and all(one.exact(game).may_err for one in found)
    known: dict[str, float] = {}
    for one in found:
        if len(one.moves) >= 5:
            legal = sorted(state_after(game, one.moves).legal_actions())
            after = [exact_value(state_after(game, (*one.moves, move)), known) for move in legal]
            assert list(one.values) == after, one.moves
    assert found == positions_to_err_in(game, "exact", 60)  # always the same ones


def test_a_move_errs_for_the_player_who_makes_it_who_may_move_again(boxes) -> None:
    game, found = boxes
    again = 0
    for one in found:
        state, exact = state_after(game, one.moves), one.exact(game)
        player, values = state.current_player(), dict(zip(state.legal_actions(), one.values, strict=True))
        best = (max if player == 0 else min)(values.values())
        assert exact.keeping == {move for move, value in values.items() if value == best}
        assert exact.outcome == (best if player == 0 else -best)
        assert str(exact.line) == (",".join(map(str, one.moves)) or "start")
        again += any(
            state_after(game, (*one.moves, move)).current_player() == player for move in exact.keeping
        )
        after = exact.after(0)
        if after is not None:
            value = values[int(str(after.line).split(",")[-1])]
            assert after.outcome == (value if after.line.first_player_to_move else -value)
    assert again >= 10
    asked = [one.exact(game) for one in found]
    draw = random.Random(0)
    right = [draw.choice(sorted(position.keeping)) for position in asked]
    wrong = [min(set(position.line.legal()) - position.keeping) for position in asked]
    assert not any(find_errors(asked, lambda lines: right))
    assert all(find_errors(asked, lambda lines: wrong))
    assert find_errors(asked, lambda lines: [*right[:20], *wrong[20:]]) == [False] * 20 + [True] * 40


def test_random_games_reach_every_position_of_a_small_game() -> None:
    game = read_game("--game", NIM)
    found = positions_to_err_in(game, "exact", 1000, only_errors=False)
    states = [state_after(game, one.moves) for one in found]
    # After one move the other player moves: the full board has one mover, as has what one move makes of it.
    sizes = itertools.product(range(2), range(3), range(4), range(5))
    assert {tuple(state.sizes) for state in states} == set(sizes) - {(0, 0, 0, 0)}
    assert len(found) == len({(tuple(state.sizes), state.player) for state in states})
    for one in found:
        assert len(one.values) == len(make_line(game, ",".join(map(str, one.moves)) or "start").legal())


def test_a_run_keeps_its_positions_until_game_or_solver_change(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOLVER, encoding="utf-8")
    run, game = RunDirectory(tmp_path), read_game("--game", NIM)
    solver = read_solver("--solver", f"{tmp_path / 'own.py'}:nim_sum")
    looks: list[int] = []
    first = truth_of_run(run, game, solver, lambda known, searched: looks.append(known))
    assert looks and first == truth_of_run(run, game, solver, lambda known, searched: pytest.fail())
    kept = (tmp_path / outside_truth.FILE).read_text()
    exact = truth_of_run(run, game, "exact", nothing)
    assert exact.positions == first.positions and exact.solver == "exact"
    assert (tmp_path / outside_truth.FILE).read_text() != kept
    other = read_game("--game", NIM.replace("4", "3"))
    assert truth_of_run(run, other, "exact", nothing).game == other
    for damage in ("", "[]", kept[: len(kept) // 2], kept.replace("1,", "7,")):
        (tmp_path / outside_truth.FILE).write_text(damage)
        looks.clear()
        again = truth_of_run(run, game, solver, lambda known, searched: looks.append(known))
        assert looks and again == first, damage[:300]
