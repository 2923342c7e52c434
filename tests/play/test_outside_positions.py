"""Positions of rules outside the core, asked for in Python: by actions, by states, in a tree that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import alphazero as az
from tests.support.paths import REPOSITORY

NIM = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles=3)"


def test_actions_are_named_by_text_or_number_and_states_by_their_history(tmp_path: Path) -> None:
    text = (REPOSITORY / "examples" / "nim.py").read_text(encoding="utf-8")
    text = text.replace("        self.player = 0\n", "        self.player, self.made = 0, []\n")
    text = text.replace("        pile, taken", "        self.made.append(action)\n        pile, taken", 1)
    path = tmp_path / "nim.py"
    path.write_text(f"{text}\n    def history(self): return self.made\n", encoding="utf-8")
    net = az.new_net(f"{path}:Nim", blocks=1, filters=8)
    kinds: dict[str, object] = {}
    exec(path.read_text(encoding="utf-8"), kinds)
    state = kinds["Nim"]()  # type: ignore[operator]
    state.apply_action(7)
    state.apply_action(0)
    by_text = net.evaluate("7,0")
    assert net.evaluate(moves=["c2", "a1"]) == net.evaluate(moves=[7, 0]) == net.evaluate(state) == by_text
    assert [found.position for found in net.evaluate_batch([state, (None, [7, 0])])] == ["7,0"] * 2
    assert net.search(state, simulations=20).moves == net.search("7,0", simulations=20).moves
    with pytest.raises(az.AlphaZeroError, match="9: no legal"):
        net.evaluate(moves=[7, 9])
    state.made = [7]
    with pytest.raises(az.AlphaZeroError, match=r"history\(\) does not"):
        net.evaluate(state)


def test_the_users_own_object_is_a_position_without_its_history() -> None:
    net = az.new_net(NIM, blocks=1, filters=8)
    state = nim_after(7, 0)
    known, found = net.evaluate(moves=[7, 0]), net.evaluate(state)
    assert (found.wdl, found.policy, found.actions) == (known.wdl, known.policy, known.actions)
    assert found.position == "state" and sorted(found.actions) == state.legal_actions()
    assert found.best_action == max(found.actions, key=found.actions.__getitem__)
    assert net.evaluate(state, moves=[3]).wdl == net.evaluate(moves=[7, 0, 3]).wdl
    assert str(state) == str(net.board(state)) == str(nim_after(7, 0))  # it is as it was
    known_search, search = net.search(moves=[7, 0], simulations=60), net.search(state, simulations=60)
    assert search.actions == known_search.actions and search.best_action == known_search.best_action
    assert (search.best.action, search.best.san, search.best.pv_san) == (
        search.best_action,
        known_search.best.text,
        known_search.best.pv_san,
    )


def test_boards_begin_at_states_and_give_them() -> None:
    net = az.new_net(NIM, blocks=1, filters=8)
    board = net.board(nim_after(7, 0))
    assert board.start == board.fen == "state" and board.moves == []
    board.push("b2")
    other = board.copy()
    other.pop()
    assert (board.fen, board.moves, other.fen) == ("state,4", ["b2"], "state")
    board.state.apply_action(6)  # a copy
    assert board.state.sizes == [0, 0, 1] and other.state.sizes == [0, 2, 1]
    with pytest.raises(az.AlphaZeroError, match="state: chess has none"):
        _ = az.Board().state


def test_states_that_look_the_same_are_searched_anew_and_a_tree_is_walked_by_actions() -> None:
    net = az.new_net(NIM, blocks=1, filters=8)
    tree = net.tree()
    state = nim_after(7)
    assert tree.set_line(state) == 0
    found = tree.search(az.SearchLimits(nodes=60))
    assert tree.set_line(state) == 0  # what led to it is not known, and may be something else
    tree.search(az.SearchLimits(nodes=60))
    kept = tree.push(found.best_action)
    assert 0 < kept < 60 and tree.snapshot().nodes == kept
    state.apply_action(found.best_action)
    assert sorted(tree.search(az.SearchLimits(nodes=80)).actions) == state.legal_actions()
    with pytest.raises(az.AlphaZeroError, match=f"{found.best_action}: no legal"):
        tree.push(found.best_action)
    while not state.is_terminal():
        action = state.legal_actions()[0]
        state.apply_action(action)
        tree.push(action)
    assert tree.snapshot().best_action is None
    tree.close()


def nim_after(*actions: int):
    """A state of a class that this program has by itself, as a user's program does."""
    kinds: dict[str, type] = {}
    exec((REPOSITORY / "examples" / "nim.py").read_text(encoding="utf-8"), kinds)
    state = kinds["Nim"]()
    for action in actions:
        state.apply_action(action)
    return state


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (type("Nim", (), {})(), "type Nim: .*current_player"),
        (
            [7, 0],
            "type list: .*current_player",
        ),
    ],
)
def test_what_is_no_state_is_refused_with_what_would_do(position: object, message: str) -> None:
    net = az.new_net(NIM, blocks=1, filters=8)
    tree = net.tree()
    for call in (net.evaluate, net.search, tree.set_line):
        with pytest.raises(az.AlphaZeroError, match=message):
            call(position)  # type: ignore[operator]
    tree.close()


def test_a_state_of_another_size_and_one_that_is_over_are_refused_in_a_line() -> None:
    net = az.new_net(NIM, blocks=1, filters=8)
    four = type(nim_after())(piles=4)
    for call in (net.evaluate, net.search):
        with pytest.raises(az.AlphaZeroError, match=r"legal_actions\(\) has 9"):
            call(four)
        with pytest.raises(az.AlphaZeroError, match="state: no legal"):
            call(nim_after(0, 4, 8))


def test_states_of_openspiel_are_positions() -> None:
    spiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    net = az.new_net("openspiel:tic_tac_toe", blocks=1, filters=8)
    state = spiel.load_game("tic_tac_toe").new_initial_state()
    state.apply_action(4)
    state.apply_action(0)
    assert net.evaluate(state) == net.evaluate(moves=[4, 0])
    other = spiel.load_game("connect_four").new_initial_state()
    with pytest.raises(az.AlphaZeroError, match="does not lead"):
        net.evaluate(other)


@pytest.mark.parametrize("game", [NIM, "connect4"])
def test_a_tree_is_kept_from_move_to_move_with_what_the_package_offers(game: str) -> None:
    net = az.new_net(game, blocks=1, filters=8)
    tree, board = net.tree(), net.board()
    tree.set_line(board)
    found = tree.search(az.SearchLimits(nodes=60))
    board.push(found.best.text)
    assert 0 < tree.set_line(board) < 60  # visits of the move that are known
    assert tree.search(az.SearchLimits(nodes=100)).best.text in board.legal_moves
    tree.close()
