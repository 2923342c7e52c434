"""A real job of two hosts: one trains, the other only plays for it, a game in a Python file."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.hosts.real_job import LAUNCH, assert_idle
from tests.support.jobs.jobs import environment
from tests.support.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NIM = f"{REPOSITORY / 'examples/nim.py'}:Nim(piles=3)"
SMALL = (
    *("--lanes", "8", "--simulations", "8", "--evaluation-batch", "8", "--blocks", "1", "--filters", "8"),
    *("--batch-size", "64", "--steps-per-generation", "2", "--generations", "4", "--device", "cpu"),
)


def test_a_host_plays_for_the_one_that_trains(network, tmp_path):
    hosts = network(2)
    (tmp_path / "hostfile").write_text("host2 slots=2 actors=2\nhost1 slots=1\n")
    job = hosts.hosts[0].popen(
        *(LAUNCH, "--game", NIM, "--hostfile", "hostfile", "--run-name", "job", *SMALL),
        cwd=tmp_path,
        env={**environment(), "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said, _ = job.communicate(timeout=500)
    assert job.returncode == 0, said
    assert "1 process on 1 host, 2 actors, master 127.0.0.1:" in said
    logs = tmp_path / "runs" / "job" / "logs"
    for number in (0, 1):
        lines = (logs / f"host2-actor{number}.log").read_text()
        assert re.search(r"actor [0-9a-f]{4}: plays nim\.py:Nim\(piles=3\)@\w+ for .*, on host2, cpu", lines)
    figures = [json.loads(line) for line in (logs.parent / "metrics.jsonl").read_text().splitlines()]
    brought = [one["brought_positions"] for one in figures if "brought_positions" in one]
    assert len(brought) == 4 and sum(brought) > 0, figures
    assert_idle(hosts)
