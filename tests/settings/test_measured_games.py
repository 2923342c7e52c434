"""What random games are like: against games whose length is known, and the same in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from alphazero.games.registry import read_game
from alphazero.settings.chosen import RANDOM_PLIES, measure
from tests.support.paths import SUPPORT

BOXES = SUPPORT / "games" / "rules" / "boxes.py"


def test_boxes_are_measured_exactly() -> None:
    """Every game of 2x2 boxes draws its 12 edges, one fewer left each time."""
    measured = measure(read_game("--game", f"{BOXES}:Boxes(size=2)"))
    assert (measured.mean_plies, measured.longest, measured.limit) == (12.0, 12, 12)
    assert measured.mean_legal == 6.5


def test_random_tic_tac_toe_has_its_known_length() -> None:
    """Of 9! orders of the squares 1440/15120 end at ply 5, 5328/60480 at 6, 47952/181440 at 7, ...: 7.6."""
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    measured = measure(read_game("--game", "openspiel:tic_tac_toe"))
    assert measured.mean_plies == pytest.approx(7.63, abs=0.4) and measured.longest == 9
    assert measured.squares == 9


ENDLESS = """class Game:
    num_distinct_actions = 2
    def __init__(self): self.player = 0
    def current_player(self): return self.player
    def legal_actions(self): return [0, 1]
    def apply_action(self, action): self.player = 1 - self.player
    def is_terminal(self): return False
    def returns(self): return [0, 0]
    def observation_tensor(self, player): return [1.0]
    def action_to_string(self, player, action): return str(action)
    max_game_length = 1000000
"""


def test_a_game_that_never_ends_is_measured_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS, encoding="utf-8")
    measured = measure(read_game("--game", f"{path}:Game"))
    assert measured.mean_plies == RANDOM_PLIES and measured.mean_legal == 2.0
