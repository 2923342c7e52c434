"""What is in examples/: each cell of a notebook, the bot, games of others and for one player.

Code cells are executed in order in one namespace, without a Jupyter kernel, in an interpreter of their own.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import alphazero as az
from alphazero.cli.command_table import run_command
from alphazero.games.outside.symmetry import symmetries_of
from alphazero.games.registry import read_game

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUN = """
import json, sys
namespace = {"__name__": "__main__"}
for number, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
"""


@pytest.mark.slow  # it imports the embedded games and trains for ten steps
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_every_cell_of_a_notebook_runs(notebook, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(notebook)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a1a8 mate in 1" in done.stdout


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_kept_without_output(notebook):
    content = json.loads(notebook.read_text())
    assert content["nbformat"] == 4
    for cell in content["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_the_bot_plays_a_game_of_the_users_own_object_to_its_end(tmp_path):
    net = az.new_net(f"{EXAMPLES / 'nim.py'}:Nim(piles=4)", blocks=1, filters=8)
    net.save(tmp_path / "nim.pt")
    bot = [sys.executable, str(EXAMPLES / "bot.py")]
    done = subprocess.run([*bot, "nim.pt"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    *moves, end = done.stdout.splitlines()
    assert all(re.match(r"bot \d+ \([+-]\d\.\d\d\); share of each action: \{\d+: ", move) for move in moves)
    assert end in ("the bot won", "the bot lost")


SNORT = f"{EXAMPLES / 'alpha_zero_general.py'}:Game(game=tests.support.games.snort_game.SnortGame)"


def test_the_rules_of_alpha_zero_general_games_pass_the_check(capsys):
    assert run_command(["games", "check", SNORT, "--games", "20"]) == 0
    assert "1 planes of 3x4" in capsys.readouterr().out
    assert len(symmetries_of(read_game("game", SNORT))) == 3  # what its getSymmetries names, and no turn


@pytest.mark.parametrize(
    ("actions", "result"),
    [
        ([2, 4, 6, 0, 10, 8, 7], "1-0"),
        ([3, 11, 2, 5, 8, 0], "0-1"),
        ([6, 11, 8, 0, 5, 3, 9], "1/2-1/2"),
    ],
)
def test_an_alpha_zero_general_game_ends_as_its_own_class_says(actions, result):
    from tests.support.games.snort_game import SnortGame

    own, board = SnortGame(), az.Board(SNORT)
    stones, player = own.getInitBoard(), 1
    for action in actions:
        assert board.result is None and own.getGameEnded(stones, player) == 0
        assert board.legal_moves == [
            str(one) for one in range(12) if own.getValidMoves(player * stones, 1)[one]
        ]
        stones, player = own.getNextState(stones, player, action)
        board.push(action)
        assert str(board).replace("\n", "") == "".join(".xo"[one] for one in stones.ravel())
    assert own.getGameEnded(stones, 1) == {"1-0": 1, "0-1": -1}.get(result, 1e-4)
    assert board.result == result


def test_a_puzzle_for_one_player_is_solved_by_a_search(capsys):
    pegs = f"{EXAMPLES / 'pegs.py'}:Pegs"
    assert run_command(["games", "check", pegs, "--games", "20"]) == 0
    assert "player 1 is never" in capsys.readouterr().out
    board = az.Board(pegs, moves=[13, 0, 35, 25, 2, 47])
    found = az.new_net(pegs, blocks=1, filters=8).search(board, simulations=3000)
    assert (found.best.proven, found.best.plies) == (1, 8)
    for action in found.best.pv:
        board.push(action)
    assert board.result == "1-0" and board.state.pegs.count(True) == 1
