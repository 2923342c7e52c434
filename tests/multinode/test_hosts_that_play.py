"""Real jobs of two hosts, a game in a Python file: one host plays for another, or both play beside ranks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hosts.hosts import Host, cannot_run
from tests.support.hosts.real_job import LAUNCH, assert_idle
from tests.support.hosts.slurm_cluster import SlurmCluster, why_not
from tests.support.jobs.jobs import environment
from tests.support.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NIM = f"{REPOSITORY / 'examples/nim.py'}:Nim(piles=3)"
SMALL = (
    *("--lanes", "8", "--simulations", "8", "--evaluation-batch", "8", "--blocks", "1", "--filters", "8"),
    *("--batch-size", "64", "--steps-per-generation", "2", "--generations", "4", "--device", "cpu"),
)


def end_of(host: Host, directory: Path, *argv: str) -> str:
    """What a small job says that ends well."""
    job = host.popen(
        *(*argv, "--game", NIM, "--run-name", "job", *SMALL),
        cwd=directory,
        env={**environment(), "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said, _ = job.communicate(timeout=500)
    assert job.returncode == 0, said
    return said


def assert_played_by(directory: Path, *names: str) -> None:
    """These actors played, and the generations are theirs. names: HOST-actorK."""
    logs = directory / "runs" / "job" / "logs"
    assert sorted(path.stem for path in logs.glob("*-actor*.log")) == sorted(names)
    for name in names:
        on = rf"on {name.partition('-')[0]}, cpu"
        lines = (logs / f"{name}.log").read_text()
        assert re.search(rf"actor [0-9a-f]{{4}}: plays nim\.py:Nim\(piles=3\)@\w+ for .*, {on}", lines)
    figures = [json.loads(line) for line in (logs.parent / "metrics.jsonl").read_text().splitlines()]
    brought = [one["brought_positions"] for one in figures if "brought_positions" in one]
    assert len(brought) == 4 and sum(brought) > 0, figures


def test_a_host_plays_for_the_one_that_trains(network, tmp_path):
    hosts = network(2)
    (tmp_path / "hostfile").write_text("host2 slots=2 actors=2\nhost1 slots=1\n")
    said = end_of(hosts.hosts[0], tmp_path, LAUNCH, "--hostfile", "hostfile")
    assert "1 process on 1 host, 2 actors, master 127.0.0.1:" in said
    assert_played_by(tmp_path, "host2-actor0", "host2-actor1")
    assert_idle(hosts)


def test_every_node_of_an_allocation_plays_beside_its_rank(network, tmp_path):
    if reason := why_not():
        cannot_run(reason)
    slurm = SlurmCluster.start(network(2))
    said = end_of(slurm.login, tmp_path, "salloc", "--nodes=2", LAUNCH, "--actors", "1")
    assert "2 processes on 2 hosts, 2 actors, master host1:" in said
    assert_played_by(tmp_path, "host1-actor0", "host2-actor0")
    slurm.wait_until_free()
