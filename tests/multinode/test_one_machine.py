"""Launches on one machine as a user types them: several at once, and one machine that plays two nodes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.hosts.real_job import LAUNCH
from tests.support.jobs.jobs import TINY, environment, free_port, step_lines
from tests.support.paths import REPOSITORY

LIMIT_S = 240
NO_RUN_NAME = tuple(word for word in TINY if word not in ("--run-name", "job"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def start(directory: Path, store: Path, *arguments: str, program: tuple[str, ...] = (LAUNCH,)):
    """A command in `directory`, its output read at its end."""
    return subprocess.Popen(
        [*program, *NO_RUN_NAME, "--data", str(store), "--steps", "2", *arguments],
        cwd=directory,
        env={**environment(), "VIRTUAL_ENV": sys.prefix},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said_by(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each said, when all have ended well."""
    try:
        deadline = time.monotonic() + LIMIT_S
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        for process in processes:
            process.terminate()
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    return said


def test_launches_at_the_same_moment_all_train(tmp_path, random_store):
    jobs = [start(tmp_path, random_store, "--gpus", "1", "--run-name", f"r{number}") for number in range(3)]
    for number, said in enumerate(said_by(jobs)):
        assert "Traceback" not in said
        assert len(step_lines(tmp_path, f"r{number}")) == 2


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1"])
def test_one_machine_plays_two_nodes(tmp_path, random_store, address: str):
    nodes = [
        start(
            tmp_path,
            random_store,
            *("--gpus", "1", "--nodes", "2", "--node-rank", str(rank), "--master-addr", address),
            *("--master-port", str(port), "--run-name", "job"),
        )
        for port in [free_port()]
        for rank in (0, 1)
    ]
    said = said_by(nodes)
    assert f"master {address} is the loopback: all 2 nodes are on this machine" in said[0]
    assert "on 2 ranks" in said[0]
    assert len(step_lines(tmp_path)) == 2


def test_ranks_by_hand_take_torchrun_s_variables(tmp_path, random_store):
    trainer = (sys.executable, str(REPOSITORY / "train_distributed.py"))
    with_variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    program = ("env", *(f"{name}={value}" for name, value in with_variables.items()), *trainer)
    ranks = [
        start(
            tmp_path,
            random_store,
            "--rank",
            str(rank),
            "--world-size",
            "2",
            "--run-name",
            "job",
            program=program,
        )
        for rank in (1, 0)
    ]
    assert "on 2 ranks" in said_by(ranks)[1]
    assert len(step_lines(tmp_path)) == 2
