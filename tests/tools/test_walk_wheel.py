"""What the walk of an installed wheel finds in outputs, and where the version of a wheel comes from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import alphazero
from tests.support.paths import REPOSITORY
from tools.walk_wheel import NEXT, absent, next_commands

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BANNER = """2026-11-27 22:14:04 weights           runs/x/net.pt
2026-11-27 22:14:04 next, play against it or have a look at it:
2026-11-27 22:14:04   alphazero play 'runs/my x'
2026-11-27 22:14:04   tensorboard --logdir runs
2026-11-27 22:14:04 continue with: alphazero train --run-name x --steps 8
2026-11-27 22:14:04 ==================================================
"""


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("wrote here.pt (10 bytes), runs/x@12000, /etc/passwd and runs/x/step.", []),
        ("wrote gone.pt", ["gone.pt"]),
        ("weights runs/y/net.pt", ["runs/y/net.pt"]),
        ("1.5 s, 1/8 of 40/min, lc0's, 7.4%", []),
        ("expected `make setup` in /nowhere", ["make setup", "/nowhere"]),
        ("./launch_distributed_training.sh --gpus 2", ["./launch_distributed_training.sh"]),
        ("alphazero eval x --data examples/games.pgn.gz", ["examples/games.pgn.gz"]),
        ("the ladder lacks maia-1100.pb.gz: not found (--ladder DIR)", []),
    ],
)
def test_a_file_that_an_output_names_is_there_or_is_found_out(output, names, tmp_path):
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "step").touch()
    (tmp_path / "here.pt").touch()
    assert absent(output, tmp_path) == names


def test_help_may_name_files_of_users_and_no_file_of_the_source(tmp_path):
    text = "a weights file (net.pt, lc0's .pb.gz), runs/x, FILE.py:CLASS; docs/cluster.md, examples/nim.py"
    assert absent(text, tmp_path, is_general=True) == ["docs/cluster.md", "examples/nim.py"]
    (tmp_path / "share" / "docs").mkdir(parents=True)
    (tmp_path / "share" / "docs" / "cluster.md").touch()
    told = f"{text}\n\ndocs/ is {tmp_path}/share/docs\n"
    assert absent(told, tmp_path, is_general=True) == ["examples/nim.py"]


def test_the_next_commands_are_those_at_the_end_of_a_run():
    assert next_commands(BANNER) == [
        ["alphazero", "play", "runs/my x"],
        ["tensorboard", "--logdir", "runs"],
        ["alphazero", "train", "--run-name", "x", "--steps", "8"],
    ]
    assert next_commands("no run") == []
    assert len(NEXT) == 6


def test_the_version_stands_in_one_place_and_has_its_changes():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    source = project["tool"]["scikit-build"]["metadata"]["version"]["input"]
    assert REPOSITORY / source == Path(alphazero.__file__)
    (newest, *_) = re.findall(r"^## (\d\S*)", (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest == alphazero.__version__
