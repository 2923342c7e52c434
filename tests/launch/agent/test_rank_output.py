"""What a rank says as it dies in native code, and which line of it is taken for the cause."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alphazero.launch.agent.rank_output import OutputStream
from tests.support.paths import REPOSITORY

ABORTS = """
import ctypes, os
from alphazero.run import rank as rank_side
rank_side.begin(os.environ)
def trains_a_step():
    ctypes.CDLL("libstdc++.so.6")["_ZSt9terminatev"]()
trains_a_step()
"""


def cause_in(output: str, tmp_path: Path) -> str:
    stream = OutputStream(0, tmp_path / "rank0.log", True, lambda message: None)
    stream.write(output.encode())
    stream.close()
    return stream.error


def test_a_rank_that_aborts_shows_its_stacks_and_names_its_cause(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", ABORTS],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGABRT
    assert "in trains_a_step" in done.stderr
    assert cause_in(done.stderr, tmp_path).startswith("terminate called without")


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("alphazero: error: no data\n", "alphazero: error: no data"),
        ("[rank3]: ValueError: bad\nand more\n", "ValueError: bad"),
        ("terminate called after throwing an instance of 'X'\n  what():  no room\n", "what():  no room"),
        ("Fatal Python error: none_dealloc: deallocating None\n", None),
        ("what(): no room\nFatal Python error: Aborted\n\nThread 0x1:\n", "what(): no room"),
        ("step 3, loss 1.2\nno error here\n", ""),
    ],
)
def test_the_line_that_names_a_cause(output: str, cause: str | None, tmp_path: Path):
    assert cause_in(output, tmp_path) == (output.strip() if cause is None else cause)
