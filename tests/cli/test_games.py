"""`alphazero games`, and what `alphazero games check` finds in rules that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError, RulesError
from alphazero.cli.command_table import build_parser, run_command
from alphazero.cli.training.train import read_settings
from alphazero.games.movers import first_player_moves
from alphazero.games.registry import game_names, make_line, read_game
from tests.support.paths import REPOSITORY, SUPPORT

BOXES = SUPPORT / "games" / "rules" / "boxes.py"


def test_the_list_names_our_games_and_says_what_else_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["games"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in game_names()) and "FILE.py:CLASS" in out
    if "OpenSpiel is not installed" not in out:
        assert out.count("\nopenspiel:") == 31


def test_rules_in_order_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["games", "check", f"{REPOSITORY / 'examples' / 'nim.py'}:Nim", "--games", "20"]) == 0
    out = capsys.readouterr().out
    assert "5 numbers, 9 moves, linear policy" in out and "20 random games of " in out
    assert "6 legal at most; 0% by the player before" in out
    assert run_command(["games", "check", f"{BOXES}:Boxes(size=2)", "--games", "20"]) == 0
    assert "20 random games of 12.0 plies, 12 at most" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="its rules are this program's own"):
        run_command(["games", "check", "chess"])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("return [0, 0]", "return [0.5, -0.5]", r"returns: \[0.5, -0.5\]; expected"),
        ("list(self.marks)", "self.marks", "clone: a move in the copy changes the original"),
        (
            "return [float(mark) for mark in self.marks]",
            "return [random.random()] * 4",
            "is another one when it is",
        ),
        ("return str(action)", "return 'x'", "action_to_string: two legal actions have one text"),
        (
            "    max_game_length = 4",
            "    max_game_length = 3",
            "max_game_length: a game of 4 plies; expected 3",
        ),
        (
            "return [i for i in range(4) if not self.marks[i]]",
            "return [4]",
            "legal_actions: 4 to 4; expected 0 to 3",
        ),
    ],
)
def test_each_fault_is_found(tmp_path: Path, old: str, new: str, fault: str) -> None:
    good = """import random
class Game:
    num_distinct_actions = 4
    max_game_length = 4
    def __init__(self): self.marks, self.player = [0] * 4, 0
    def current_player(self): return self.player
    def legal_actions(self): return [i for i in range(4) if not self.marks[i]]
    def apply_action(self, action):
        if action < 4: self.marks[action] = 1
        self.player = 1 - self.player
    def is_terminal(self): return all(self.marks)
    def returns(self): return [0, 0]
    def observation_tensor(self, player): return [float(mark) for mark in self.marks]
    def action_to_string(self, player, action): return str(action)
    def clone(self):
        other = Game()
        other.marks, other.player = list(self.marks), self.player
        return other
"""
    path = tmp_path / "game.py"
    path.write_text(good)
    words = ["games", "check", f"{path}:Game", "--games", "3"]
    assert run_command(words) == 0
    assert old in good
    changed = good.replace(old, new)
    if "return [4]" in new:  # the game must end all the same
        changed = changed.replace("return all(self.marks)", "return self.player == 1")
    path.write_text(changed)
    with pytest.raises(RulesError, match=fault):
        run_command(words)


def test_who_moved_is_asked_of_the_rules_where_players_do_not_take_turns() -> None:
    game = read_game("--game", f"{BOXES}:Boxes(size=2)")
    line, made, moves = make_line(game), [], []
    while not line.outcome().over:
        made.append(line.first_player_to_move)
        moves.append(line.legal()[0])
        line.push(moves[-1])
    assert first_player_moves(game, moves).tolist() == made
    assert made != [ply % 2 == 0 for ply in range(len(moves))]
    assert first_player_moves("connect4", [0, 0, 0]).tolist() == [True, False, True]


def test_games_of_others_have_a_preset_unless_a_file_is_named() -> None:
    parser = build_parser("train")
    nim = f"{REPOSITORY / 'examples' / 'nim.py'}:Nim"

    def preset(*words: str) -> tuple[str, str]:
        config, _ = read_settings(parser.parse_args([*words, "--deepspeed-config", ""]), "chess_cpu")
        return config.preset, config.self_play.mode

    assert preset("--game", nim) == ("own_game", "selfplay")
    assert preset("--game", nim, "--config", "othello", "--mode", "mixed") == ("othello", "mixed")
    assert preset("--game", "othello") == ("chess_cpu", "supervised")
