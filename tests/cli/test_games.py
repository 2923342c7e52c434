"""`alphazero games`, and what `alphazero games check` finds in rules that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError, RulesError
from alphazero.cli.command_table import build_parser, run_command
from alphazero.cli.training import games
from alphazero.cli.training.train import chosen_lines, read_settings
from alphazero.games.lines import first_player_moves
from alphazero.games.registry import game_names, make_line, read_game
from alphazero.settings.load import to_table
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
        ("return self.player", "return -4", r"current_player\(\) is -4; expected 0 or 1 while"),
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
        config = read_settings(parser.parse_args([*words, "--deepspeed-config", ""]), "chess_cpu")
        return config.preset, config.self_play.mode

    assert preset("--game", nim) == ("own_game", "selfplay")
    assert preset("--game", nim, "--config", "othello", "--mode", "mixed") == ("othello", "mixed")
    assert preset("--game", "othello") == ("chess_cpu", "supervised")


RANK = """import json, sys
from alphazero.cli.command_table import build_parser
from alphazero.cli.training.train import read_settings
from alphazero.settings.load import to_table
config = read_settings(build_parser("train").parse_args(sys.argv[1:]), "chess_20x256")
print(json.dumps(to_table(config)))
"""


def test_the_launcher_and_every_rank_choose_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--game", f"{BOXES}:Boxes(size=2)", "--device", "cpu"]
    config = read_settings(build_parser("train").parse_args(words), "chess_cpu")
    for seed in ("1", "2"):  # of Python's own hashes, by which sets are ordered
        rank = subprocess.run(
            [sys.executable, "-c", RANK, *words],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert json.loads(rank.stdout) == to_table(config), rank.stderr
    assert run_command(["launch", *words, "--gpus", "2", "--dry-run"]) == 0
    (line,) = chosen_lines(config)
    assert line in capsys.readouterr().err


HISTORY = """class Game:
    num_distinct_actions = 4
    max_game_length = 4
    def __init__(self): self.moves = []
    def current_player(self): return len(self.moves) % 2
    def legal_actions(self): return [i for i in range(4) if i not in self.moves]
    def apply_action(self, action): self.moves.append(action)
    def is_terminal(self): return len(self.moves) == 4
    def returns(self): return [0, 0]
    def observation_tensor(self, player): return [float(i in self.moves) for i in range(4)]
    def action_to_string(self, player, action): return str(action)
    def clone(self):
        other = Game()
        other.moves = list(self.moves)
        return other
"""


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        (
            "if i not in self.moves]",
            "if i not in self.moves and not (self.moves == [2, 1] and i == 0)]",
            "differ in their legal actions",
        ),
        (
            "len(self.moves) == 4",
            "len(self.moves) == 4 or self.moves == [2, 1, 0]",
            "differ in whether the game ends after action 0",
        ),
        ("return [0, 0]", "return [1, -1] if self.moves == [2, 1, 0, 3] else [0, 0]", "differ in the result"),
    ],
)
def test_what_the_network_cannot_see_is_noted_with_both_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, differs: str
) -> None:
    path = tmp_path / "history.py"
    path.write_text(HISTORY, encoding="utf-8")
    words = ["games", "check", f"{path}:Game", "--games", "300"]
    assert run_command(words) == 0
    assert "note:" not in capsys.readouterr().out
    path.write_text(HISTORY.replace(old, new), encoding="utf-8")
    assert run_command(words) == 0
    out = capsys.readouterr().out
    (note,) = (line for line in out.splitlines() if line.startswith("note: "))
    assert note.startswith("note: observation_tensor: two positions look the same and ") and differs in note
    lines = note.partition("(the moves: ")[2].rstrip(")").split(" and ")
    assert "2,1" in (line[:3] for line in lines)
    first, second = ({int(move) for move in line.split(",")} for line in lines)
    assert first == second  # the same squares are taken


def test_the_check_says_what_to_expect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.py"
    path.write_text(HISTORY, encoding="utf-8")
    monkeypatch.setattr(games, "SEARCH_S", 0.1)
    assert run_command(["games", "check", f"{path}:Game"]) == 0
    rows = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert rows["games"].startswith("1,000 random games of 4.0 plies")
    assert rows["search"].endswith(" simulations/s on one core with a network that costs nothing")
    assert int(rows["search"].partition(" ")[0].replace(",", "")) > 100
    config = read_settings(build_parser("train").parse_args(["--game", f"{path}:Game"]), "chess_cpu")
    assert (rows["training"],) == chosen_lines(config)


def test_the_check_ends_after_its_time_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slow.py"
    path.write_text(
        "import time\n" + HISTORY.replace("self.moves.append", "time.sleep(0.01); self.moves.append")
    )
    monkeypatch.setattr(games, "LIMIT_S", 0.5)
    monkeypatch.setattr(games, "SEARCH_S", 0.1)
    assert run_command(["games", "check", f"{path}:Game", "--games", "100000"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("games"))
    assert "; ended after 0 s" in row
    assert 1 <= int(row.split()[1]) < 100
