"""A rank that holds up a job which no agent watches is named."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from alphazero.run.directory import RunDirectory
from alphazero.run.rank import JOB_VARIABLE, HeartbeatWriter, Phase
from alphazero.run.rank_watch import Limits
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.start.stall_watch import stall_watch

LIMITS = Limits(step_s=1.0, pause_s=1.0)
LONGEST_WAIT_S = 10.0
SILENCE_S = 3.0


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


@pytest.fixture
def other() -> Iterator[int]:
    """The process of rank 1."""
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def beat(run: RunDirectory, other: int, monkeypatch: pytest.MonkeyPatch):
    """Rank 0 is this process."""

    def of(rank: int, step: int) -> None:
        pid = other if rank else os.getpid()
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: pid)
            HeartbeatWriter(run.heartbeats, rank, "here", "").beat(Phase.CHECKPOINT, step)

    return of


def said_of(run: RunDirectory, rank: int, wait_s: float, **environment: str) -> list[str]:
    """What the watch of a rank reports."""
    lines: list[str] = []
    runtime = Runtime(rank, rank, 2, 2, torch.device("cpu"), "gloo", "here")
    with stall_watch(run, runtime, lines.append, LIMITS, environment):
        until = time.monotonic() + wait_s
        while time.monotonic() < until and not lines:
            time.sleep(0.05)
    return lines


def test_a_stopped_rank_is_named_by_the_first_one_that_is_not(run, other, beat):
    beat(0, 5)
    beat(1, 5)
    os.kill(other, signal.SIGSTOP)
    (line,) = said_of(run, 0, LONGEST_WAIT_S)
    assert line.startswith(f"rank 1 on here (pid {other}) stands still in step 5 (checkpoint) for ")
    assert line.endswith(", its process is stopped")
    assert said_of(run, 1, SILENCE_S) == []  # rank 0 reports


def test_the_rank_behind_is_named(run, other, beat):
    beat(0, 6)
    beat(1, 5)
    (line,) = said_of(run, 0, LONGEST_WAIT_S)
    assert line.startswith(f"rank 1 on here (pid {other}) stands still in step 5 (checkpoint) for ")


def test_ranks_that_all_wait_alike_blame_none(run, beat):
    beat(0, 5)
    beat(1, 5)
    (line,) = said_of(run, 0, LONGEST_WAIT_S)
    assert line.startswith("here: no rank has moved for ")
    assert line.endswith("one of them, or a rank of another host, holds up the job")


def test_where_an_agent_watches_nothing_is_reported(run, other, beat):
    beat(0, 5)
    beat(1, 5)
    os.kill(other, signal.SIGSTOP)
    assert said_of(run, 0, SILENCE_S, **{JOB_VARIABLE: "token"}) == []
