"""Threads that wait sleep soon in our commands; the library leaves the environment as it is."""

import os
import subprocess
import sys

import pytest

from alphazero.cli.main import SPIN_COUNT

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
        ({}, {SPIN_COUNT}),
        ({"GOMP_SPINCOUNT": "7"}, {"7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"None"}),
    ],
)
def test_a_command_sets_how_long_threads_spin_unless_the_user_has(given, expected):
    assert output(COMMAND, given).split()[-1] in expected


def test_importing_the_library_leaves_the_environment_as_it_is():
    output(LIBRARY, {})
