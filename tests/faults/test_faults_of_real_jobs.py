"""Faults with torchrun and the real trainer; test_fault_matrix.py has the whole matrix over stand-ins."""

import re
import time

import pytest

from tests.support.hosts.hosts import Host
from tests.support.hosts.real_job import Job, error_line, write_hostfile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT_S = 30.0
HANG_S = 60.0  # the default of --hang-timeout


@pytest.fixture
def job(network, tmp_path, random_store):
    """A job on two hosts that has made a hundred steps."""
    hosts = network(2)
    write_hostfile(tmp_path, 2)
    job = Job(hosts.hosts[0], tmp_path, random_store, "--hostfile", "hostfile", "--steps", "100000")
    job.hosts = hosts.hosts
    job.wait_for("step 100/")
    return job


def rank_pid(host: Host, rank: int) -> int:
    found = [pid for pid in host.python_processes() if host.environment_of(pid).get("RANK") == str(rank)]
    return min(found)


def end_within_limit(job: Job, limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Exit status and what was said; nothing left on either host."""
    begun = time.monotonic()
    status, said = job.end()
    assert time.monotonic() - begun < limit_s, said
    for host in job.hosts:
        host.wait_until_idle(limit_s=LIMIT_S)
    return status, said


def test_a_killed_rank(job):
    job.hosts[1].run("kill", "-9", str(rank_pid(job.hosts[1], 3)))
    status, said = end_within_limit(job)
    assert status == 137
    assert re.match(r"alphazero: error: rank 3 on host2 \(pid \d+\) was killed by SIGKILL", error_line(said))


def test_a_stopped_rank_and_the_stacks_of_all(job, tmp_path):
    job.hosts[1].run("kill", "-STOP", str(rank_pid(job.hosts[1], 2)))
    status, said = end_within_limit(job, HANG_S + LIMIT_S)
    assert status == 124
    assert re.match(
        r"alphazero: error: rank 2 on host2 .* stands still in step \d+ .*is stopped", error_line(said)
    )
    for rank in range(4):
        log = tmp_path / "runs" / "job" / "logs" / f"host{rank // 2 + 1}-rank{rank}.log"
        assert "most recent call first" in log.read_text()
        assert "trainer.py" in log.read_text()


def test_a_host_cut_off(job):
    job.hosts[1].cut_off()
    status, said = end_within_limit(job)
    assert status == 1
    assert error_line(said).startswith("alphazero: error: host2 is lost: ")


@pytest.mark.parametrize("part", ["node_agent", "node.torchrun"])
def test_an_agent_killed(job, part: str):
    host = job.hosts[1]
    pid = min(pid for pid, line in host.python_processes().items() if part in line)
    host.run("kill", "-9", str(pid))
    status, said = end_within_limit(job)
    assert status == (1 if part == "node_agent" else 137)
    assert error_line(said).startswith("alphazero: error: host2 ")


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(job, tmp_path, times: int):
    head = job.hosts[0]
    pid = min(pid for pid, line in head.python_processes().items() if " launch " in line)
    for _ in range(times):
        head.run("kill", "-INT", str(pid))
        time.sleep(0.2)
    status, _ = end_within_limit(job)
    assert status == 130
    if times == 1:
        assert any((tmp_path / "runs" / "job" / "checkpoints").glob("step-*"))
