"""Threads that wait sleep soon, unless the user has said how they wait."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
import alphazero
assert "torch" not in sys.modules
print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "20000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
    ],
)
def test_the_package_says_how_threads_wait_before_torch_is_there(given, expected):
    kept = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=kept | given,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == expected
