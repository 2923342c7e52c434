"""Where the seconds of a start went, as --debug shows it."""

import re
import subprocess
import sys
import time

import pytest
import torch

from alphazero.base.errors import DEBUG_VARIABLE
from alphazero.training.loop.start_clock import StartClock

CPU = torch.device("cpu")
ROW = re.compile(r" +(\d+\.\d\d) s  (.+)")
RANK = """
import time, torch
from alphazero.training.loop.start_clock import StartClock
clock = StartClock()
clock.ended("rank")
clock.first_step_ended(torch.device("cpu"), print)
"""
# Sleeps, and then starts the file beside it.
PARENT = """
import subprocess, sys, time
from pathlib import Path
time.sleep({seconds})
subprocess.run([sys.executable, str(Path(__file__).with_name("{child}.py"))], check=True)
"""


def rows_of(text: str) -> dict[str, float]:
    """Seconds by stage; they add up to the first line's."""
    first, *lines = text.splitlines()
    rows = {match[2]: float(match[1]) for line in lines if (match := ROW.fullmatch(line))}
    assert len(rows) == len(lines)
    whole = re.fullmatch(r"from the command to the end of the first step: (\d+\.\d\d) s", first)
    assert whole and sum(rows.values()) == pytest.approx(float(whole[1]), abs=0.005 * len(rows) + 0.005)
    return rows


def test_each_program_and_stage_has_its_seconds(tmp_path) -> None:
    programs = tmp_path / "alphazero"
    programs.mkdir()
    (programs / "launch.py").write_text(PARENT.format(seconds=1, child="torchrun"))
    (programs / "torchrun.py").write_text(PARENT.format(seconds=0.5, child="rank"))
    (programs / "rank.py").write_text(RANK)
    command = [sys.executable, str(programs / "launch.py")]
    before = time.monotonic()
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = rows_of(said)
    assert sum(rows.values()) < time.monotonic() - before
    assert rows["launcher"] >= 0.99 and rows["torchrun"] >= 0.49  # the kernel counts in hundredths
    assert rows["rank"] > 0.3  # which imports torch
    assert list(rows)[-1].startswith("first step")


def test_it_prints_once_and_only_where_it_was_asked_to(monkeypatch) -> None:
    said: list[str] = []
    clock = StartClock()
    time.sleep(0.05)
    clock.ended("a stage")
    for _ in range(2):
        clock.first_step_ended(CPU, said.append)
    (text,) = said
    assert rows_of(text)["a stage"] >= 0.05
    monkeypatch.delenv(DEBUG_VARIABLE)
    clock = StartClock()
    clock.ended("a stage")
    clock.first_step_ended(CPU, said.append)
    assert len(said) == 1
