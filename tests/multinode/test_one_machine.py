"""Launches on one machine as a user types them: several at once, and one machine that plays two nodes."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.hosts.real_job import LAUNCH
from tests.support.jobs.jobs import TINY, environment, free_port, one_core_in_turn, step_lines

LIMIT_S = 300
NO_RUN_NAME = tuple(word for word in TINY if word not in ("--run-name", "job"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Started:
    """A command in `directory`, its output in a file: a full pipe would hold it."""

    def __init__(
        self, directory: Path, store: Path, number: int, *arguments: str, program: tuple[str, ...] = (LAUNCH,)
    ) -> None:
        self.output = directory / f"said-{number}"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [*program, *NO_RUN_NAME, "--data", str(store), "--steps", "2", *arguments],
                cwd=directory,
                env={**environment(), "VIRTUAL_ENV": sys.prefix},
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=one_core_in_turn(number),
            )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """While it runs."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.1)


def said_by(jobs: list[Started]) -> list[str]:
    """What each said, when all have ended well. Nobody waits for one that ended badly."""
    processes = [job.process for job in jobs]
    try:
        deadline = time.monotonic() + LIMIT_S
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            if any(process.returncode for process in processes):
                break
            time.sleep(0.2)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
    said = [job.output.read_text() for job in jobs]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n\n".join(said)
    return said


def somebody_listens_on(port: int) -> bool:
    return any(
        one.laddr.port == port and one.status == psutil.CONN_LISTEN for one in psutil.net_connections("tcp")
    )


def test_launches_at_the_same_moment_all_train(tmp_path, random_store):
    jobs = [
        Started(tmp_path, random_store, number, "--gpus", "1", "--run-name", f"r{number}")
        for number in range(3)
    ]
    for number, said in enumerate(said_by(jobs)):
        assert "Traceback" not in said
        assert len(step_lines(tmp_path, f"r{number}")) == 2


@pytest.mark.parametrize(
    ("address", "later"),
    [
        pytest.param("localhost", None, id="at the same moment"),
        pytest.param("127.0.0.1", 1, id="node 1 when node 0 waits"),
        pytest.param("localhost", 0, id="node 0 when node 1 waits"),
    ],
)
def test_one_machine_plays_two_nodes(tmp_path, random_store, address: str, later: int | None):
    port = free_port()

    def node(rank: int) -> Started:
        place = ("--nodes", "2", "--node-rank", str(rank), "--master-addr", address)
        words = ("--gpus", "1", *place, "--master-port", str(port), "--run-name", "job")
        return Started(tmp_path, random_store, rank, *words)

    if later is None:
        nodes = [node(0), node(1)]
    elif later == 1:
        first = node(0)
        first.wait_until(lambda: somebody_listens_on(port))
        nodes = [first, node(1)]
    else:
        first = node(1)
        first.wait_until(lambda: f"waiting for node 0 of 2 at {address}:{port}" in first.output.read_text())
        nodes = [node(0), first]
    said = said_by(nodes)
    assert f"{address} is the loopback" in said[0]
    assert "on 2 ranks" in said[0]
    assert len(step_lines(tmp_path)) == 2
