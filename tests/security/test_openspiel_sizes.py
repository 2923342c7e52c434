"""Names of OpenSpiel's games with parameters that no board has: one line, at once, in little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.base.errors import ConfigError
from alphazero.games.registry import get_game, read_game

pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
HOSTILE = [
    "mnk(m=100000,n=100000,k=3)",
    "mnk(m=9999,n=9999,k=3)",
    "mnk(m=65536,n=65536,k=3)",  # 2^32 actions are 0 for OpenSpiel
    "mnk(m=-5)",
    "mnk(m=-5,n=-5)",
    "mnk(m=a)",
    "dots_and_boxes(num_rows=100000,num_cols=100000)",
    "dots_and_boxes(num_rows=65536,num_cols=65535)",
    "hex(board_size=1000000)",
    "hex(board_size=9999)",
    "connect_four(rows=3,columns=-4)",
    "connect_four(rows=0)",
    "go(board_size=10000)",
    "gomoku(size=3,dims=1000)",
    "gomoku(size=65536,dims=2)",
    "gomoku(size=1000,dims=10)",
    "gomoku(size=10,dims=-5)",
    "quoridor(players=0)",
    "nim(pile_sizes=1000000000;3)",
    "breakthrough(columns=1)",
    "chinese_checkers(max_moves=-5)",
    f"hex(board_size={'9' * 5000})",
]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: name[:40])
def test_sizes_that_no_game_has_are_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        _ = get_game(read_game("--game", f"openspiel:{name}")).core
    assert name[:12] in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", (HOSTILE[0], "mnk(m=a)", "hex(board_size=1000000)"))
def test_a_command_ends_with_status_2_and_little_memory(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("alphazero"), "games", "check", f"openspiel:{name}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30)),
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and name[:8] in done.stderr, done.stderr


@pytest.mark.parametrize(
    "name",
    ["hex(board_size=19)", "mnk(m=30,n=30,k=5)", "dots_and_boxes(num_rows=9,num_cols=9)"],
)
def test_boards_that_people_play_on_are_learned(name: str) -> None:
    _ = get_game(read_game("--game", f"openspiel:{name}")).core
