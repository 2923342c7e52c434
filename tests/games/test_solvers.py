"""Exact values by our own search and by solvers that the user names.

Truth: OpenSpiel's own minimax, the theory of Nim, and other searches over other representations.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest

from alphazero.base.errors import ConfigError, RulesError
from alphazero.games.outside.rules import Rules
from alphazero.games.outside.solvers import ExactSearch, check_solver, position_key, read_solver, solver_of
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import read_game
from tests.support.games.boxes_on_paper import margin
from tests.support.games.exact import all_positions, exact_value
from tests.support.paths import REPOSITORY, SUPPORT

BOXES = f"{SUPPORT / 'games' / 'rules' / 'boxes.py'}:Boxes"
NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim"
# Three counters in a ring that anyone moves on: positions come back.
RING = """
class Ring:
    num_distinct_actions = 2
    max_game_length = 100
    def __init__(self): self.place, self.player = 0, 0
    def current_player(self): return self.player
    def legal_actions(self): return [0, 1]
    def apply_action(self, action):
        self.place, self.player = (self.place + 2 * action - 1) % 7, 1 - self.player
    def is_terminal(self): return self.place == 3
    def returns(self): return [1, -1]
    def observation_tensor(self, player): return [float(self.place)]
    def action_to_string(self, player, action): return "lr"[action]
    def __str__(self): return str(self.place)
"""
SOLVERS = """
def first_wins(state): return 1
def at_most(state, value=1): return value
def two(state): return 2
def fails(state): return state.no_such_thing
class Deep:
    def __init__(self, value=0): self.value = value
    def __call__(self, state):
        state.apply_action(state.legal_actions()[0])  # of a copy
        return self.value
class Idle: pass
number = 1
"""


@pytest.fixture
def minimax() -> Any:
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    return pytest.importorskip("open_spiel.python.algorithms.minimax")


def rules(game: str) -> Rules:
    if game.startswith("openspiel:"):
        pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    return rules_of(read_game("--game", game))


def moved(found: Rules, *moves: int) -> Any:
    state = found.clone(found.start) if found.clone else found.start.clone()
    for move in moves:
        state.apply_action(move)
    return state


def by_openspiel(minimax: Any, state: Any) -> int:
    """Player 0's value by OpenSpiel's alpha-beta, which has no table."""
    if state.is_terminal():
        return int(state.returns()[0])
    return int(minimax.alpha_beta_search(state.get_game(), state, None, 100, 0)[0])


def test_every_position_of_tic_tac_toe_has_the_value_of_openspiel_s_search(minimax: Any) -> None:
    found = rules("openspiel:tic_tac_toe")
    search, places = ExactSearch(found), all_positions(found)
    assert places is not None and len(places) == 4520  # 5,478 reachable ones, of which 958 are over
    for moves, state in places:
        if len(moves) >= 2:  # the others follow from these
            assert search(state) == by_openspiel(minimax, state), moves
    assert {search(state) for moves, state in places if len(moves) < 2} == {0}


@pytest.mark.parametrize(
    "game", ["hex(board_size=3)", "mnk(m=3,n=3)", "dots_and_boxes(num_cols=1)", "dots_and_boxes(num_rows=1)"]
)
def test_every_first_move_has_the_value_of_openspiel_s_search(minimax: Any, game: str) -> None:
    found = rules(f"openspiel:{game}")
    search, values = ExactSearch(found), []
    for move in found.start.legal_actions():
        values.append(search(moved(found, move)))
        assert values[-1] == by_openspiel(minimax, moved(found, move)), move
    assert search(found.start) == max(values)
    if game.startswith("hex"):
        assert values == [-1, -1, 1, 1, 1, 1, 1, -1, -1]  # the first player wins, by the middle for one


@pytest.mark.slow
def test_the_first_player_wins_hex_on_four_by_four() -> None:
    found = rules("openspiel:hex(board_size=4)")
    assert ExactSearch(found)(moved(found, 3)) == 1


@pytest.mark.parametrize("misere", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 3), (2, 2, 2), (1, 1, 1, 1), (1, 3, 5)])
def test_every_position_of_nim_is_won_by_the_rule_of_its_sums(sizes: tuple[int, ...], misere: bool) -> None:
    found = rules(f"openspiel:nim(is_misere={misere},pile_sizes={';'.join(map(str, sizes))})")
    search = ExactSearch(found)
    for moves, state in all_positions(found):
        piles = [int(size) for size in re.findall(r"\d+", str(state))[1:]]
        wins = reduce(xor, piles) != 0
        if misere and max(piles) <= 1:
            wins = not wins
        mover = 1 if state.current_player() == 0 else -1
        assert search(state) == (mover if wins else -mover), moves


def test_nim_of_the_page_is_won_by_the_same_rule() -> None:
    found = rules(f"{NIM}(piles=4)")
    search = ExactSearch(found)
    for moves, state in all_positions(found):
        mover = 1 if state.current_player() == 0 else -1
        assert search(state) == (mover if reduce(xor, state.sizes) else -mover), moves


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_dots_and_boxes_has_the_value_of_a_search_over_sets_of_edges(rows: int, columns: int) -> None:
    found = rules(f"openspiel:dots_and_boxes(num_cols={columns},num_rows={rows})")
    search = ExactSearch(found)
    lead = margin(rows, columns, 0)
    assert search(found.start) == (lead > 0) - (lead < 0) == {1: -1, 2: 0, 4: 1}[rows * columns]
    # Whoever draws the first edge has closed no box, and the other one moves.
    for edge in range(min(4, found.num_actions)):  # of the rim and within it
        lead = -margin(rows, columns, 1 << edge)
        assert search(moved(found, edge)) == (lead > 0) - (lead < 0), edge


def test_dots_and_boxes_in_python_is_openspiel_s() -> None:
    found = rules(f"{BOXES}(size=2)")
    assert ExactSearch(found)(found.start) == 1
    assert ExactSearch(found)(moved(found, 0, 2)) == exact_value(moved(found, 0, 2))


def test_positions_that_only_look_alike_in_part_are_kept_apart() -> None:
    found = rules("openspiel:tic_tac_toe")
    states = [moved(found, *moves) for moves in ((0,), (1,), (0, 1), (0, 1, 2), (2, 1, 0), (0, 2, 1))]
    keys = [position_key(state) for state in states]
    assert keys[3] == keys[4] and len(set(keys)) == 5


def test_a_game_that_is_too_large_or_comes_back_is_refused_in_a_line(tmp_path: Path) -> None:
    found = rules("openspiel:tic_tac_toe")
    with pytest.raises(ConfigError, match=r"tac_toe .*: 1 position "):
        ExactSearch(found, limit_s=0.0)(found.start)
    path = tmp_path / "ring.py"
    path.write_text(RING, encoding="utf-8")
    found = rules(f"{path}:Ring")
    with pytest.raises(ConfigError, match=r"Ring@\S*: .*come back"):
        ExactSearch(found)(found.start)


def test_a_game_that_remembers_what_it_does_not_show_is_refused(tmp_path: Path) -> None:
    """Nim in which the first action decides the last: nothing shows it in between."""
    text = (REPOSITORY / "examples" / "nim.py").read_text(encoding="utf-8")
    text = text.replace(
        "        self.sizes[pile]",
        "        self.first = getattr(self, 'first', action)\n        self.sizes[pile]",
    )
    text = text.replace("self.player == 1", "(self.player + self.first) % 2")
    text = text.replace(
        "        return other",
        "        other.__dict__.update(self.__dict__, sizes=other.sizes)\n        return other",
    )
    path = tmp_path / "memory.py"
    path.write_text(text, encoding="utf-8")
    found = rules(f"{path}:Nim(piles=3)")
    with pytest.raises(ConfigError, match=r"Nim\S*: .*other results"):
        ExactSearch(found)(found.start)


def test_actions_may_come_in_any_order(tmp_path: Path) -> None:
    """As where they follow a set, or pieces in the order in which they moved."""
    text = (REPOSITORY / "examples" / "nim.py").read_text(encoding="utf-8")
    path = tmp_path / "unordered.py"
    text = re.sub(
        r"(def legal_actions.*\n.*return) (.*)", r"\1 sorted(\2, key=lambda _: random.random())", text
    )
    path.write_text(f"import random\n{text}", encoding="utf-8")
    found = rules(f"{path}:Nim(piles=4)")
    assert ExactSearch(found)(found.start) == ExactSearch(rules(f"{NIM}(piles=4)"))(found.start)
    places = [all_positions(each) for each in (found, rules(f"{NIM}(piles=4)"))]
    assert [moves for moves, _ in places[0] or ()] == [moves for moves, _ in places[1] or ()]


@pytest.fixture
def solvers(tmp_path: Path) -> Path:
    path = tmp_path / "solvers.py"
    path.write_text(SOLVERS, encoding="utf-8")
    return path


def test_a_solver_of_the_user_s_is_a_function_or_a_class_with_parameters(solvers: Path) -> None:
    found = rules(NIM)
    for name, value in (("first_wins", 1), ("at_most(value=-1)", -1), ("Deep", 0), ("Deep(value=-1)", -1)):
        recorded = read_solver("--solver", f"{solvers}:{name}")
        assert recorded.startswith(f"solvers.py:{name}@")
        assert solver_of(recorded, found)(found.start) == value
    assert found.start.legal_actions() == rules(NIM).start.legal_actions()  # a copy was changed
    assert read_solver("--solver", "exact") == "exact"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("two", RulesError, r"solvers\.py:two: gives '2' for the position .*; expected 1, 0 or -1"),
        ("fails", RulesError, r"solvers\.py:5: AttributeError: .*no_such_thing"),
        ("Idle", ConfigError, r"solvers\.py:Idle: has no method __call__"),
        ("number", ConfigError, r"solvers\.py: no class or function 'number'"),
        ("Deep(depth=3)", RulesError, r"solvers\.py:Deep\S*: TypeError"),
    ],
)
def test_a_solver_that_is_none_is_named(solvers: Path, name: str, error: type, message: str) -> None:
    found = rules(NIM)
    with pytest.raises(error, match=message):
        solver_of(read_solver("--solver", f"{solvers}:{name}"), found)(found.start)


def test_a_recorded_solver_runs_nothing_by_itself(solvers: Path) -> None:
    recorded = "solvers.py:other@0123456789ab"
    assert read_solver("checkpoint: solver", recorded) == recorded
    with pytest.raises(ConfigError, match=r"where .*PATH/solvers.py"):
        solver_of(recorded, rules(NIM))
    with pytest.raises(ConfigError, match=r"--solver .*: No such"):
        read_solver("--solver", "/nowhere/solver.py:solve")
    with pytest.raises(ConfigError, match=r"'perfect': .*FILE\.py:NAME"):
        read_solver("--solver", "perfect")
    with pytest.raises(ConfigError, match=r"exact: .*tictactoe is"):
        check_solver("exact", "tictactoe")
