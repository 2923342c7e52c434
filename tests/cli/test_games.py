"""`alphazero games`, and what `alphazero games check` finds in rules that are wrong."""

from __future__ import annotations

import dataclasses
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
from alphazero.games.outside.check import Findings, check, notes_of
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import game_names, make_line, read_game
from alphazero.settings.load import to_table
from tests.games.test_outside import THIRTY_ONE
from tests.support.paths import REPOSITORY, SUPPORT

BOXES = SUPPORT / "games" / "rules" / "boxes.py"


def test_the_list_names_our_games_and_says_what_else_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["games"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[: len(game_names())] == list(game_names()) and "FILE.py:CLASS" in out
    if "OpenSpiel is not installed" not in out:
        assert out.count("\nopenspiel:") == 31


def test_rules_in_order_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["games", "check", f"{REPOSITORY / 'examples' / 'nim.py'}:Nim", "--games", "20"]) == 0
    out = capsys.readouterr().out
    assert "3 numbers, 9 actions" in out and "20 random games" in out
    assert run_command(["games", "check", f"{BOXES}:Boxes(size=2)", "--games", "20"]) == 0
    assert "20 random games of 12.0" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="its rules are"):
        run_command(["games", "check", "chess"])


GOOD = """import random
class Game:
    num_distinct_actions = 4
    max_game_length = 4
    drawn_at_random = random.Random()
    def __init__(self): self.marks, self.player, self.score = [0] * 4, 0, 0
    def current_player(self): return self.player
    def legal_actions(self): return [i for i in range(4) if not self.marks[i]]
    def apply_action(self, action):
        if action < 4: self.marks[action] = 1 + self.player
        self.player, self.score = 1 - self.player, self.score + action * self.player
    def is_terminal(self): return all(self.marks)
    def returns(self): return [1, -1] if self.score % 2 else [-1, 1]
    def observation_tensor(self, player): return [mark / 2 for mark in self.marks]
    def action_to_string(self, player, action): return str(action)
    def clone(self):
        other = Game()
        other.marks, other.player, other.score = list(self.marks), self.player, self.score
        return other
"""


LEGAL, SEEN = "return [i for i in range(4) if not self.marks[i]]", "[mark / 2 for mark in self.marks]"
SCORE = "self.player, self.score\n        return"


def good_but(path: Path, old: str, new: str) -> str:
    assert old in GOOD
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    return f"{path}:Game"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("else [-1, 1]", "else [-0.5, 0.5]", r"returns\(\) is \[-0.5, 0.5\]; expected"),
        ("else [-1, 1]", "else [float('nan'), 0]", r"returns\(\) is \[nan, 0\]; expected"),
        ("return [1, -1] if", "return None if", r"returns\(\) is None; expected"),
        ("return [1, -1] if", "return 1 if", r"returns\(\) is 1; expected"),
        ("list(self.marks)", "self.marks", "a move in it changes the original's legal_actions"),
        ("        return other\n", "        return self\n", "a move in it changes the original's "),
        (SEEN, "[random.random()] * 4", "is another one when it is"),
        (SEEN, "None", r"observation_tensor\(\) is None; expected"),
        (
            SEEN,
            "[1, 2, 3, self.marks and 'x']",
            r"observation_tensor\(\) is .*'x'",
        ),
        ("return str(action)", "return 'x'", r"action_to_string\(\) has one text for two legal actions"),
        ("return str(action)", "return action", r"action_to_string\(\) of action 0 is 0; expected a line of"),
        ("return str(action)", "return str(action) if action < 3 else None", "of action 3 is None; expected"),
        ("return str(action)", "return '' if action == 2 else str(action)", "of action 2 is ''; expected"),
        ("return str(action)", "return f'a\\n{action}'", r"of action 0 is 'a\\n0'; expected a line"),
        ("max_game_length = 4", "max_game_length = 3", r"is_terminal\(\) is false after 3 plies"),
        ("return all(self.marks)", "return False", r"legal_actions\(\) is empty"),
        (LEGAL, "return [4]", "has 4 to 4; expected 0 to 3"),
        (LEGAL, "return [0, 0]", "names an action twice"),
        (
            LEGAL,
            "return 3",
            r"legal_actions\(\) is 3; expected",
        ),
        ("return self.player", "return -4", r"current_player\(\) is -4; expected 0 or 1 while"),
        # The mover is lost in copies, or a stone: seen after moves of both players.
        (
            "list(self.marks), self.player",
            "list(self.marks), 0",
            "differs from its original in current_",
        ),
        (
            "list(self.marks),",
            "[self.marks[0], 0, *self.marks[2:]],",
            "differs from its original in legal",
        ),
        # What nothing shows until a move brings it to light.
        (
            SCORE,
            SCORE.replace("self.score", "0"),
            "in a copy leads elsewhere, by ",
        ),
        # Chance: in a move, in what a new game begins with.
        (
            "        if action < 4:",
            "        action = self.drawn_at_random.choice(self.legal_actions())\n        if action < 4:",
            "in a copy leads elsewhere, by ",
        ),
        ("= [0] * 4, 0, 0", "= [0] * 4, random.randrange(2), 0", "in a new game lead elsewhere, by "),
        (
            "        if action < 4:",
            "        return self.clone()\n        if action < 4:",
            r"apply_action\(\) returns a Game",
        ),
    ],
)
def test_each_fault_is_found(tmp_path: Path, old: str, new: str, fault: str) -> None:
    game = good_but(tmp_path / "game.py", old, new)
    if "return [4]" in new:  # the game must end all the same
        path = tmp_path / "game.py"
        path.write_text(path.read_text().replace("return all(self.marks)", "return self.player == 1"))
    with pytest.raises(RulesError, match=fault) as caught:
        run_command(["games", "check", game, "--games", "60"])
    assert "game.py" in str(caught.value)


def notes_in(out: str) -> list[str]:
    return [line.removeprefix("note: ") for line in out.splitlines() if line.startswith("note: ")]


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("max_game_length = 4", "max_game_length = 4", ""),
        ("else [-1, 1]", "else [1, -1]", "returns: player 0 won all 60 games"),
        ("return [1, -1] if", "return [0, 0] if 1 or", "returns: all 60 games were drawn"),
        (
            "self.player, self.score = 1 - self.player,",
            "self.score =",
            "current_player: player 1 is",
        ),
        ("    def clone(self):", "    def unused(self):", "clone: there is none"),
        ("[mark / 2 for", "[0 * mark for", "observation_tensor: the same in every position"),
        ("[mark / 2 for", "[mark * 1e6 for", "observation_tensor: has numbers up to 2,000,000"),
    ],
)
def test_what_may_be_meant_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, note: str
) -> None:
    assert run_command(["games", "check", good_but(tmp_path / "game.py", old, new), "--games", "60"]) == 0
    found = notes_in(capsys.readouterr().out)
    assert len(found) == bool(note) and all(one.startswith(note) for one in found)


@pytest.mark.parametrize(
    ("shape", "num_actions", "are_signs", "meant"),
    [
        ((2, 3, 4), 12, True, ""),
        ((3, 4, 2), 12, True, "[2, 3, 4]"),  # channels last
        ((8, 8, 2), 64, True, "[2, 8, 8]"),
        ((6, 7, 2), 7, True, "[2, 6, 7]"),
        ((6, 7), 7, True, "[1, 6, 7]"),
        ((9, 9), 81, False, "[1, 9, 9]"),  # else 9 planes of 3x3
        ((3, 225), 225, True, ""),  # planes and squares
        ((2, 1, 8, 8), 64, True, "[2, 8, 8]"),
        ((24,), 12, True, "[planes, height, width]"),
        ((42,), 7, True, "[planes, height, width]"),
        ((131,), 65, True, ""),
        ((128,), 65, True, "[planes, height, width]"),  # a pass
        ((24,), 12, False, ""),
        ((4,), 9, True, ""),
    ],
)
def test_an_observation_that_may_be_a_board_is_a_note(
    shape: tuple[int, ...], num_actions: int, are_signs: bool, meant: str
) -> None:
    rules = dataclasses.replace(
        rules_of(read_game("--game", f"{BOXES}:Boxes")), clone=None, observed=shape, num_actions=num_actions
    )
    found = Findings(games=1, moved=[1, 1], are_signs=are_signs, sees_changes=True)
    notes = notes_of(rules, found)
    assert len(notes) == bool(meant) and all(meant in note for note in notes)


OWN = [f"{REPOSITORY / 'examples' / 'nim.py'}:Nim(piles={piles})" for piles in (2, 3, 4, 8)]


@pytest.mark.parametrize("game", OWN)
def test_our_own_examples_have_no_notes(game: str) -> None:
    rules = rules_of(read_game("--game", game))
    assert notes_of(rules, check(rules, 200, 1)) == []


@pytest.mark.parametrize("name", THIRTY_ONE)
def test_games_of_openspiel_have_no_faults_and_no_notes(name: str) -> None:
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    rules = rules_of(read_game("--game", f"openspiel:{name}"))
    notes = notes_of(rules, check(rules, 300, 1, 0.7))
    assert all(note.startswith("is_terminal: no game has") for note in notes)


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
    def returns(self): return [1, -1] if self.moves[-1] % 2 else [-1, 1]
    def observation_tensor(self, player): return [float(i in self.moves) for i in range(4)]
    def action_to_string(self, player, action): return str(action)
    def clone(self):
        other = Game()
        other.moves = list(self.moves)
        return other
"""


def test_the_check_says_what_to_expect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.py"
    path.write_text(HISTORY, encoding="utf-8")
    assert run_command(["games", "check", f"{path}:Game"]) == 0
    rows = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert rows["games"].startswith("1,000 random games of 4.0 plies")
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
    assert run_command(["games", "check", f"{path}:Game", "--games", "100000"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("games"))
    assert "; ended after 0 s" in row
    assert 1 <= int(row.split()[1]) < 100
