"""Actors on the hosts of a job, and hosts that only play: whatever becomes of them, the others train.

Stand-ins as in test_fault_matrix.py; fake_actor.py for actors.
"""

import re
import signal

import pytest

from tests.faults.test_supervision import result_of
from tests.support.faults.faulty_job import FaultyJob
from tests.support.hosts.real_job import error_line

# Ranks and an actor on host1, actors alone on host2.
BESIDE_AND_ALONE = [["host1", "", 2, 1], ["host2", "host2", 0, 2]]


def lines_of(job: FaultyJob, name: str) -> list[str]:
    """Of a log, without their times."""
    return re.findall(r"(?:plays for|has published|actor \d).*", (job.run / "logs" / name).read_text())


def test_actors_play_on_all_hosts_and_publish_at_the_end_and_one_that_is_killed_starts_again(start):
    job = start(hosts=BESIDE_AND_ALONE, num_steps=150, step_s=0.05)
    job.wait_until("both actors", lambda: job.output.read_text().count("host2: plays for") == 2, 20)
    job.wait_for_step(2)
    job.hosts[1].run("kill", "-9", str(job.process(job.hosts[1], "fake_actor")))
    job.wait_for_output("host2: alphazero: actor [01] was killed by SIGKILL.*; it starts again in 2 s")
    job.wait_until("another start", lambda: job.output.read_text().count("host2: plays for") == 3, 20)
    status, said = job.end()
    assert status == 0, said
    assert (job.run / "result").read_text() == result_of(150)
    assert "2 processes on 1 host, 3 actors, master 127.0.0.1:" in said
    place = f"plays for {job.run}"
    assert lines_of(job, "host1-actor0.log") == [place, "has published"]
    both = [lines_of(job, f"host2-actor{number}.log") for number in (0, 1)]
    both.sort(key=len)
    assert both[0] == [place, "has published"]
    assert both[1][0] == place and "starts again" in both[1][1] and both[1][2:] == [place, "has published"]


@pytest.mark.slow
def test_training_continues_without_a_host_that_only_plays(start):
    job = start(hosts=BESIDE_AND_ALONE, num_steps=120, limits={"silence_s": 3.0})
    job.wait_for_output("host2: plays for")
    job.wait_for_step(2)
    job.hosts[1].cut_off()
    status, said = job.end()
    assert status == 0, said
    assert said.count("host2 is lost: ") == 1 and ": training continues without its actors" in said
    assert (job.run / "result").read_text() == result_of(120)


def test_hosts_that_share_no_directory_with_the_learner_cannot_play_for_it_there(start, tmp_path):
    job = start(hosts=BESIDE_AND_ALONE, before=lambda hosts: hosts[1].make_private(tmp_path / "runs"))
    status, said = job.end()
    assert status == 2
    assert f"error: host2: {tmp_path}/runs: is another directory than on the first host" in said
    assert "one that actors and learner see, or --place URL" in said and "1 of 2 hosts" in error_line(said)
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_hosts_that_share_nothing_meet_in_a_bucket_and_a_request_to_stop_reaches_all(start, tmp_path):
    job = start(
        hosts=BESIDE_AND_ALONE,
        before=lambda hosts: hosts[1].make_private(tmp_path / "runs"),
        place="s3://bucket/x",
    )
    job.wait_for_output("host2: plays for s3://bucket/x")
    job.wait_for_step(2)
    job.hosts[0].run("kill", "-INT", str(job.process(job.hosts[0], "fake_head")))
    status, said = job.end()
    assert status == 128 + signal.SIGINT, said
    assert said.count("host2: has published") == 2 and "rank 0 stopped after step" in said
    assert "error" not in said


@pytest.mark.slow
def test_a_host_that_only_plays_must_be_there_at_the_first_start_but_not_at_a_restart(start):
    absent = [*BESIDE_AND_ALONE, ["host3", "host3", 0, 1]]
    status, said = start(hosts=absent).end(limit_s=60)
    assert status == 2 and "2 of 3 hosts can start; expected 3: nothing started" in error_line(said)
    job = start(hosts=BESIDE_AND_ALONE, num_steps=100, max_restarts=1, limits={"silence_s": 3.0})
    job.wait_for_output("host2: plays for")
    job.wait_for_step(7)
    job.hosts[1].cut_off()
    job.hosts[0].run("kill", "-9", str(job.rank_process(job.hosts[0], 1)))
    job.wait_for_output("continuing with 1 of 2 hosts, without host2", limit_s=60)
    status, said = job.end(limit_s=60)
    assert status == 0, said
    assert (job.run / "result").read_text() == result_of(100)
