"""Starts after failures: results as undisturbed, hosts that leave and come back, an end to vain restarts."""

import random
import re
import time

import pytest

from tests.support.faults.faulty_job import FaultyJob
from tests.support.hosts.real_job import error_line

# What the ranks of fake_rank.py sum up over so many steps, whatever their number.
ITEMS = sum(range(12))


def result_of(num_steps: int) -> str:
    return str(ITEMS * sum(range(1, num_steps + 1)))


def kill_rank(job: FaultyJob, rank: int) -> None:
    host = job.hosts[rank // 2]
    host.run("kill", "-9", str(job.rank_process(host, rank)))


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_job_whose_ranks_are_killed_again_and_again_ends_as_if_undisturbed(start, kills: int):
    draw = random.Random(7)
    num_steps = kills * 12
    job = start(num_steps=num_steps, step_s=0.12, max_restarts=kills)
    for turn in range(1, kills + 1):
        job.wait_for_step(turn * 10, limit_s=60)
        kill_rank(job, draw.randrange(4))
        job.wait_for_output(f"restart {turn} of {kills}")
    status, said = job.end(limit_s=60)
    assert status == 0, said
    assert (job.run / "result").read_text() == result_of(num_steps)
    kept = (job.run / "logs" / "launcher.log").read_text()
    assert kept.count("was killed by SIGKILL") == kept.count(f" of {kills} in ") == kills
    begun = [int(step) for step in re.findall(r"^rank 0 begins at step (\d+)", said, re.MULTILINE)]
    assert len(begun) == kills + 1
    assert begun == sorted(begun)
    assert begun[-1] >= (kills - 1) * 10


@pytest.mark.slow
def test_a_job_that_gets_nowhere_is_not_started_for_ever(start):
    job = start(environment={"ALPHAZERO_TEST_DIE_AT": "3"}, max_restarts=50, num_steps=10, step_s=0.0)
    status, said = job.end(limit_s=60)
    assert status == 137
    assert "no step advanced" in said
    assert said.count("alphazero: restart ") <= 3


@pytest.mark.slow
def test_a_host_that_is_gone_is_left_out_and_taken_back_at_the_next_restart(start):
    num_steps = 400
    job = start(num_hosts=3, num_steps=num_steps, step_s=0.05, max_restarts=2, min_nodes=2)
    job.wait_for_step(7)
    job.hosts[2].cut_off()
    job.wait_for_output("continuing with 2 of 3 hosts, without host3", limit_s=60)
    job.wait_for_output(r"rank 0 begins at step \d+ of 400 on 4 ranks")
    job.hosts[2].wait_until_idle(limit_s=30)  # nothing goes on there by itself
    job.hosts[2].reconnect()
    job.wait_for_step(100, limit_s=60)
    kill_rank(job, 1)
    job.wait_for_output(r"rank 5 begins at step \d+ of 400 on 6 ranks", limit_s=60)
    status, said = job.end(limit_s=60)
    assert status == 0, said
    assert (job.run / "result").read_text() == result_of(num_steps)


@pytest.mark.slow
def test_too_few_hosts_are_not_enough(start):
    job = start(num_hosts=3, max_restarts=1, min_nodes=3)
    job.wait_for_step(7)
    job.hosts[2].cut_off()
    status, said = job.end(limit_s=60)
    assert status == 2
    assert "2 of 3 hosts" in error_line(said)
    assert "host3: no answer" in said


@pytest.mark.slow
def test_the_master_itself_may_be_the_host_that_is_gone(start):
    """The head is on host1, the ranks on host2 and host3: host2 is the master."""
    hosts = [["host2", "host2", 2], ["host3", "host3", 2], ["host1", "", 2]]
    job = start(num_hosts=3, num_steps=100, hosts=hosts, max_restarts=1, min_nodes=2)
    job.wait_for_step(7)
    job.hosts[1].cut_off()
    job.wait_for_output("continuing with 2 of 3 hosts, without host2", limit_s=60)
    begun = time.monotonic()
    status, said = job.end(limit_s=60)
    assert status == 0, said
    assert time.monotonic() - begun < 40
    assert (job.run / "result").read_text() == result_of(100)
