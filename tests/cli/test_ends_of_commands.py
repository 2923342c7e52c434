"""How a command ends that cannot go on: a reader that left, Ctrl-C, what nobody foresaw."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alphazero.cli.main import main

ALPHAZERO = [sys.executable, "-m", "alphazero"]
FAULTY = """
import sys
from alphazero.cli import main
from alphazero.cli.training import health
def fail(args):
    raise {error}
health.run = fail
main.entry_point(["health"])
"""


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what makes tests see tracebacks."""
    kept = {name: value for name, value in os.environ.items() if name != "ALPHAZERO_TRACEBACK"}
    return kept | variables


@pytest.mark.parametrize("command", [["--help"], ["train", "--help"], ["perft", "startpos", "2"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_left_is_no_error(command, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*ALPHAZERO, *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_ends_a_command_without_a_traceback():
    process = subprocess.Popen(
        [*ALPHAZERO, "perft", "startpos", "9"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "alphazero: interrupted\n")


def run_faulty(error: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`alphazero health` with this bug in it."""
    program = FAULTY.format(error=error)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**variables),
    )


def test_what_nobody_foresaw_is_one_line_and_a_file_with_the_traceback(tmp_path):
    done = run_faulty("TypeError('no\\nsuch thing')", TMPDIR=str(tmp_path))
    assert done.returncode == 70
    line = re.fullmatch(
        r"alphazero: internal error: TypeError: no such thing \(traceback in (\S+)\)\n", done.stderr
    )
    assert line, done.stderr
    kept = Path(line[1]).read_text()
    assert "Traceback" in kept and "in fail" in kept and "Python 3" in kept


def test_a_long_account_is_cut(tmp_path):
    done = run_faulty("ValueError('x' * 100_000)", TMPDIR=str(tmp_path))
    assert done.returncode == 70
    assert len(done.stderr) < 500


@pytest.mark.parametrize("variable", [{"ALPHAZERO_TRACEBACK": "1"}, {"RANK": "1"}])
def test_a_rank_and_a_test_see_the_traceback_itself(variable):
    done = run_faulty("TypeError('x')", **variable)
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "in fail" in done.stderr


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch, capsys):
    def lacks(argv):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("alphazero.cli.main.run_command", lacks)
    monkeypatch.delenv("ALPHAZERO_TRACEBACK")
    assert main(["doctor"]) == 2
    expected = f"alphazero: error: {sys.executable}: has no torch; expected `make setup`\n"
    assert capsys.readouterr().err == expected
