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


def test_a_state_without_a_history_is_refused_with_what_would_do() -> None:
    net = az.new_net(NIM, blocks=1, filters=8)
    with pytest.raises(az.AlphaZeroError, match=r"type Nim: .*history\(\)"):
        net.evaluate(type("Nim", (), {})())  # type: ignore[arg-type]


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
