"""Real training jobs over hosts in namespaces: by hostfile from the head, by hand on each, with DeepSpeed.

Losses equal those of one host with as many ranks: step 1 within 1e-6 relative, every step within 1e-3.
"""

import json
import os
import random
import re
import time
from pathlib import Path

import pytest

from tests.support.hosts.hosts import Network
from tests.support.hosts.real_job import STEPS, Job, assert_idle, error_line, rank_names, write_hostfile
from tests.support.jobs.jobs import run_job, step_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


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
    assert "all-reduce" in said
    assert f"on {2 * num_hosts} ranks" in said
    assert_idle(hosts)


def start_by_hand(network: Network, directory: Path, store: Path, *more: str) -> list[Job]:
    return [
        Job(
            host,
            directory,
            store,
            *("--gpus", "2", "--nodes", "2", "--node-rank", str(rank), "--master-addr", "10.213.57.1"),
            *more,
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


@pytest.mark.parametrize("is_powered_off", [False, True])
def test_by_hand_the_death_of_one_host_ends_the_other(network, tmp_path, random_store, is_powered_off: bool):
    """Killed: its agent ends its ranks, which save first. Powered off: nothing comes from it any more."""
    hosts = network(2)
    first, second = start_by_hand(hosts, tmp_path, random_store, "--steps", "5000")
    first.wait_for("step 100/")
    if is_powered_off:
        hosts.hosts[1].space.end()
    else:
        os.killpg(second.process.pid, 9)
    begun = time.monotonic()
    status, said = first.end()
    assert time.monotonic() - begun < 30, said
    # The connections of a killed host are reset or fall silent, as the kernel has it.
    assert status == (1 if is_powered_off else 143), said
    if is_powered_off:
        assert re.search("error: (host1 has lost node 1|rank [01] on host1)", error_line(said))
    hosts.hosts[0].wait_until_idle(limit_s=15)
    second.process.wait(15)


def test_by_hand_closed_ports_are_named_on_both_nodes_before_ranks_start(network, tmp_path, random_store):
    hosts = network(2)
    for host in hosts.hosts:
        host.close_ports(22, 12355)
    begun = time.monotonic()
    jobs = start_by_hand(hosts, tmp_path, random_store)
    for job in jobs:
        status, said = job.end()
        assert status == 2, said
        for here, there, address in ((0, 1, "10.213.57.2"), (1, 0, "10.213.57.1")):
            names = rf"node {here} \(host{here + 1}\) cannot reach node {there} \(host{there + 1}\)"
            assert re.search(rf"{names} at {address}:\d+: no answer \(a firewall", error_line(said))
    assert time.monotonic() - begun < 60  # most of it loads Python
    assert_idle(hosts)


def test_by_hand_a_signal_at_one_node_is_the_end_before_the_last_step_on_both(
    network, tmp_path, random_store
):
    hosts = network(2)
    jobs = start_by_hand(hosts, tmp_path, random_store, "--steps", "5000")
    jobs[0].wait_for("step 5/")
    jobs[1].signal("INT", "__main__.py launch")
    for job, expected in zip(jobs, (143, 130), strict=True):  # agents pass any signal on as SIGTERM
        status, said = job.end()
        assert status == expected, said
        assert re.search(r"alphazero: continue with: .* --run-name job$", said.rstrip()), said
    assert "a signal to another" in jobs[0].output.read_text()
    assert_idle(hosts)


def test_without_a_shared_file_system_the_run_goes_on_when_the_heads_host_is_lost(
    network, tmp_path, random_store, one_host
):
    hosts = network(3)
    for host in hosts.hosts:
        host.make_private(tmp_path / "runs")
    (tmp_path / "hostfile").write_text("host1 slots=2\nhost2 slots=2\n")
    arguments = ("--hostfile", "hostfile", "--steps", "10", "--checkpoint-interval", "5")
    status, said = Job(hosts.hosts[0], tmp_path, random_store, *arguments).end()
    assert status == 0, said
    hosts.hosts[0].space.end()
    (tmp_path / "hostfile").write_text("host2 slots=2\nhost3 slots=2\n")
    job = Job(hosts.hosts[1], tmp_path, random_store, "--hostfile", "hostfile", "--steps", str(STEPS))
    status, said = job.end()
    assert status == 0, said
    assert "resumed from step 10" in said
    text = hosts.hosts[1].run("cat", str(tmp_path / "runs" / "job" / "metrics.jsonl"))
    steps = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "step"]
    by_step = {line["step"]: line["loss"] for line in steps}
    for line in one_host[10:]:
        assert by_step[line["step"]] == pytest.approx(line["loss"], rel=1e-3)
    names = hosts.hosts[2].run("ls", str(tmp_path / "runs" / "job" / "checkpoints")).split()
    assert f"step-{STEPS:08d}" in names


def test_a_real_job_whose_ranks_are_killed_ends_with_the_losses_of_an_undisturbed_one(
    network, tmp_path, random_store
):
    num_kills, steps = 10, 160
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    run_job(tmp_path / "one", random_store, 4, "--steps", str(steps))
    hosts = network(2)
    write_hostfile(tmp_path / "two", 2)
    arguments = ("--hostfile", "hostfile", "--max-restarts", str(num_kills), "--checkpoint-interval", "5")
    job = Job(hosts.hosts[0], tmp_path / "two", random_store, *arguments, "--steps", str(steps))
    draw = random.Random(3)
    for kill in range(1, num_kills + 1):
        job.wait_for(f"step {kill * 15}/")
        host = draw.choice(hosts.hosts)
        ranks = [pid for pid in host.python_processes() if "LOCAL_RANK" in host.environment_of(pid)]
        host.run("kill", "-9", str(draw.choice(ranks)))
        job.wait_for(f"restart {kill} of {num_kills}")
    status, said = job.end()
    assert status == 0, said
    expected = step_lines(tmp_path / "one")
    lines = step_lines(tmp_path / "two")
    assert len(lines) == len(expected) == steps
    for line, reference in zip(lines, expected, strict=True):
        assert line["loss"] == pytest.approx(reference["loss"], rel=1e-3)
    assert_idle(hosts)
