"""No test works in the checkout, where a user's runs may be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

ALPHAZERO = (sys.executable, "-m", "alphazero", "runs")


def test_every_test_has_a_directory_of_its_own(tmp_path: Path):
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize("touch", [os.listdir, os.scandir, os.mkdir])
def test_the_runs_of_the_checkout_are_out_of_bounds(touch):
    with pytest.raises(AssertionError):
        touch(REPOSITORY / "runs")
    with pytest.raises(AssertionError):
        (REPOSITORY / "runs" / "job" / "config.json").read_text(encoding="utf-8")


def test_no_command_is_started_in_the_checkout(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(AssertionError):
        subprocess.run(ALPHAZERO, cwd=REPOSITORY)
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(AssertionError):
        subprocess.run([REPOSITORY / "launch_distributed_training.sh", "--dry-run"])
