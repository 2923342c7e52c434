"""Threads that wait sleep soon in our commands; the library leaves the environment as it is."""

import os
import subprocess
import sys
from unittest import mock

import pytest

from alphazero.cli.main import BUSY_SPIN_COUNT, SPIN_COUNT, is_busy

COMMAND = """
import atexit, os, sys
from alphazero.cli.main import entry_point
assert "torch" not in sys.modules
atexit.register(lambda: print(os.environ.get("GOMP_SPINCOUNT")))
entry_point(["--version"])
"""
LIBRARY = """
import os
before = dict(os.environ)
import alphazero
alphazero.game_names()
assert os.environ == before
"""


def output(program: str, environment: dict[str, str]) -> str:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {SPIN_COUNT, BUSY_SPIN_COUNT}),  # as the machine is
        ({"GOMP_SPINCOUNT": "7"}, {"7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"None"}),
    ],
)
def test_a_command_sets_how_long_threads_spin_unless_the_user_has(given, expected):
    assert output(COMMAND, given).split()[-1] in expected


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ("4.02 3.10 1.00 6/300 1234\n", True),
        ("0.30 0.10 0.05 1/300 1234\n", False),
        ("4.02 3.10 1.00 1/300 1234\n", False),  # what kept it busy has ended
        ("0.30 0.10 0.05 6/300 1234\n", False),  # a moment's work
        ("damaged\n", False),
    ],
)
def test_a_machine_is_busy_while_other_programs_use_a_quarter_of_it(tmp_path, figures, expected):
    path = tmp_path / "loadavg"
    path.write_text(figures)
    assert is_busy(path, processors=2) is expected
    assert not is_busy(path, processors=64)
    assert not is_busy(tmp_path / "none")


def test_a_program_that_ends_as_this_one_begins_does_not_make_the_machine_busy():
    figures = mock.Mock()
    figures.read_text.side_effect = ["2.00 1.5 1.0 3/99 9"] * 3 + ["2.00 1.5 1.0 1/99 9"]
    assert not is_busy(figures, processors=2)
    figures.read_text.side_effect = ["2.00 1.5 1.0 3/99 9"] * 9
    assert is_busy(figures, processors=2)


def test_importing_the_library_leaves_the_environment_as_it_is():
    output(LIBRARY, {})
