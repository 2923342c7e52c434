"""The preflight, all ranks together before a job starts, as a user of a hostfile meets it."""

import json
from pathlib import Path

import pytest

from tests.support.hosts.hosts import Network
from tests.support.hosts.real_job import Job, assert_idle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def start(network: Network, directory: Path, store: Path, *flags: str) -> tuple[int, str]:
    (directory / "hostfile").write_text("host1 slots=1\nhost2 slots=1\n")
    arguments = ("--hostfile", "hostfile", "--steps", "3", *flags)
    status, said = Job(network.hosts[0], directory, store, *arguments).end()
    assert_idle(network)
    return status, said


def test_hosts_that_agree_are_told_of_in_one_line_and_the_job_starts(network, tmp_path, random_store):
    status, said = start(network(2), tmp_path, random_store, "--health-interval", "0.2")
    assert status == 0, said
    lines = [line for line in said.splitlines() if line.startswith("alphazero: preflight: ")]
    assert len(lines) == 1, said
    assert lines[0].startswith("alphazero: preflight: 2 ranks on 2 hosts, cpu: all-reduce ")
    assert said.index(lines[0]) < said.index("2 processes on 2 hosts, master host1:")
    # Figures of the first host go to the metrics.
    text = (tmp_path / "runs" / "job" / "metrics.jsonl").read_text()
    assert any(json.loads(line)["kind"] == "health" for line in text.splitlines())


def test_no_preflight_starts_at_once(network, tmp_path, random_store):
    status, said = start(network(2), tmp_path, random_store, "--no-preflight")
    assert status == 0, said
    assert "preflight: " not in said
    assert "preflight" not in said.replace("--no-preflight", "")


def test_one_host_under_a_name_and_an_address_is_named_and_nothing_starts(network, tmp_path, random_store):
    hosts = network(2)
    address = hosts.hosts[1].address
    (tmp_path / "hostfile").write_text(f"host1 slots=1\nhost2 slots=1\n{address} slots=1\n")
    job = Job(hosts.hosts[0], tmp_path, random_store, "--hostfile", "hostfile", "--steps", "3")
    status, said = job.end()
    assert status == 2, said
    assert f"error: {address}: is the same" in said
    assert_idle(hosts)
