"""Real training jobs over hosts in namespaces: by hostfile from the head, by hand on each, with DeepSpeed.

Losses equal those of one host with as many ranks: step 1 within 1e-6 relative, every step within 1e-3.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import REPOSITORY, Host, Network
from jobs import TINY, environment, run_job, step_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = 30
LAUNCH = str(REPOSITORY / "launch_distributed_training.sh")
JOB_LIMIT_S = 300


@pytest.fixture(scope="module")
def one_host(namespaces, tmp_path_factory, random_store):
    """Figures of 4 ranks on one host."""
    directory = tmp_path_factory.mktemp("one-host")
    run_job(directory, random_store, 4, "--steps", str(STEPS))
    return step_lines(directory)


def assert_same_training(directory: Path, reference: list[dict[str, float]]) -> None:
    lines = step_lines(directory)
    assert len(lines) == len(reference) == STEPS
    for line, expected in zip(lines, reference, strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)
    assert lines[0]["loss"] == pytest.approx(reference[0]["loss"], rel=1e-6)


def assert_logs(directory: Path, names: list[str]) -> None:
    logs = directory / "runs" / "job" / "logs"
    assert sorted(path.name for path in logs.iterdir() if "-rank" in path.name) == names


class Job:
    """The launcher on one host of a network, as a user types it."""

    def __init__(self, host: Host, directory: Path, store: Path, *arguments: str) -> None:
        self.output = directory / f"said-{host.name}"
        self.process = host.popen(
            LAUNCH,
            *arguments,
            *TINY,
            *("--data", str(store), "--steps", str(STEPS)),
            cwd=directory,
            env={**environment(), "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": ""},
            stdout=self.output.open("w"),
            stderr=subprocess.STDOUT,
        )

    def end(self) -> tuple[int, str]:
        """Exit status and what was said."""
        try:
            status = self.process.wait(JOB_LIMIT_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, 9)
        return status, self.output.read_text()

    def wait_for(self, pattern: str) -> None:
        """Until it has been said."""
        deadline = time.monotonic() + JOB_LIMIT_S
        while not re.search(pattern, self.output.read_text()):
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, f"no {pattern}: {self.output.read_text()}"
            time.sleep(0.1)


def write_hostfile(directory: Path, num_hosts: int) -> None:
    lines = [f"host{number} slots=2\n" for number in range(1, num_hosts + 1)]
    (directory / "hostfile").write_text("".join(lines))


def rank_names(num_hosts: int) -> list[str]:
    return [f"host{rank // 2 + 1}-rank{rank}.log" for rank in range(2 * num_hosts)]


def assert_idle(network: Network) -> None:
    for host in network.hosts:
        host.wait_until_idle(limit_s=15)


@pytest.mark.parametrize(("num_hosts", "launcher"), [(2, "torchrun"), (3, "torchrun"), (2, "deepspeed")])
def test_a_hostfile_starts_all_hosts_from_the_head(
    network, tmp_path, random_store, one_host, num_hosts: int, launcher: str
):
    hosts = network(num_hosts)
    write_hostfile(tmp_path, num_hosts)
    arguments = ("--hostfile", "hostfile", "--launcher", launcher)
    status, said = Job(hosts.hosts[0], tmp_path, random_store, *arguments).end()
    assert status == 0, said
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]
    assert_same_training(tmp_path, one_host)
    assert_logs(tmp_path, rank_names(num_hosts))
    assert f"on {2 * num_hosts} ranks" in said
    assert_idle(hosts)


def start_by_hand(network: Network, directory: Path, store: Path) -> list[Job]:
    return [
        Job(
            host,
            directory,
            store,
            *("--gpus", "2", "--nodes", "2", "--node-rank", str(rank), "--master-addr", "10.213.57.1"),
        )
        for rank, host in enumerate(network.hosts)
    ]


def test_each_host_started_by_hand(network, tmp_path, random_store, one_host):
    hosts = network(2)
    for job in start_by_hand(hosts, tmp_path, random_store):
        status, said = job.end()
        assert status == 0, said
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]
    assert_same_training(tmp_path, one_host)
    assert_logs(tmp_path, rank_names(2))
    assert_idle(hosts)


def test_by_hand_the_death_of_one_host_ends_the_other(network, tmp_path, random_store):
    hosts = network(2)
    first, second = start_by_hand(hosts, tmp_path, random_store)
    first.wait_for("step 5/")
    os.killpg(second.process.pid, 9)
    begun = time.monotonic()
    status, said = first.end()
    assert time.monotonic() - begun < 30
    assert status not in (0, None), said
    assert re.search(r"error: rank [01] on host1 .* ended with exit status 1", said)
    assert_idle(hosts)
