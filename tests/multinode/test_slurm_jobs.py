"""The launcher under a real SLURM of hosts in namespaces: its environment, batch scripts, steps, scancel."""

import re
import sys
import time
from pathlib import Path

import pytest
from hosts import REPOSITORY
from jobs import TINY, environment, run_job, step_lines
from slurm_cluster import PROGRAMS, ROOT_VARIABLE, SlurmCluster, find_programs

from alphazero.cluster.slurm import SlurmJob, read_slurm
from alphazero.errors import LaunchError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = 10


def user(slurm: SlurmCluster) -> dict[str, str]:
    """The environment of somebody who starts training."""
    return {**environment(), "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": "", **slurm.environment}


@pytest.fixture(scope="module")
def slurm(namespaces, tmp_path_factory):
    """Three nodes of two cores."""
    from hosts import Network

    if missing := sorted(PROGRAMS.keys() - find_programs().keys()):
        pytest.skip(f"SLURM is not installed ({', '.join(missing)}), and {ROOT_VARIABLE} names no copy")
    network = Network.build(tmp_path_factory.mktemp("network"), 3)
    try:
        cluster = SlurmCluster.start(network, tmp_path_factory.mktemp("slurm"))
        yield cluster
        cluster.end()
    finally:
        network.end()


def batch_script(directory: Path, *lines: str) -> str:
    """Path of a script that sbatch takes."""
    path = directory / "job.sh"
    path.write_text("\n".join(("#!/bin/bash", *lines, "")))
    return str(path)


def read_as(text: str) -> SlurmJob | None:
    """read_slurm of an environment as `env` printed it."""
    return read_slurm(dict(line.split("=", 1) for line in text.splitlines() if line.startswith("SLURM")))


@pytest.mark.parametrize(
    ("options", "hosts", "tasks"),
    [
        (("-N3",), ("host1", "host2", "host3"), ()),
        (("-N2", "--ntasks-per-node=2"), ("host1", "host2"), (2, 2)),
        (("-n5",), ("host1", "host2", "host3"), None),
    ],
)
def test_a_batch_script_s_environment_is_read_as_slurm_means_it(
    slurm, tmp_path: Path, options: tuple[str, ...], hosts: tuple[str, ...], tasks: tuple[int, ...] | None
):
    script = batch_script(tmp_path, "env > said.txt")
    done = slurm.run("sbatch", "-W", "-o", "log", *options, script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = read_as((tmp_path / "said.txt").read_text())
    assert job is not None
    assert (job.hosts, job.in_step, job.node_name) == (hosts, False, "host1")
    assert sum(job.tasks_per_node) == 5 if tasks is None else job.tasks_per_node == tasks


def test_the_environment_of_tasks_is_read_as_slurm_means_it(slurm, tmp_path: Path):
    tasks = ("srun", "-N2", "-w", "host[2-3]", "sh", "-c", "env > said-$SLURM_NODEID.txt")
    assert slurm.run(*tasks, cwd=tmp_path).returncode == 0
    jobs = [read_as((tmp_path / f"said-{rank}.txt").read_text()) for rank in (0, 1)]
    assert [(job.hosts, job.node_rank) for job in jobs if job] == [
        (("host2", "host3"), 0),
        (("host2", "host3"), 1),
    ]
    done = slurm.run("srun", "-N2", "--ntasks-per-node=2", "sh", "-c", "env > many.txt", cwd=tmp_path)
    assert done.returncode == 0
    with pytest.raises(LaunchError, match=r"wanted one task a node"):
        read_as((tmp_path / "many.txt").read_text())


@pytest.fixture(scope="module")
def one_host(tmp_path_factory, random_store):
    """Figures of 4 ranks on one host."""
    directory = tmp_path_factory.mktemp("one-host")
    run_job(directory, random_store, 4, "--steps", str(STEPS))
    return step_lines(directory)


def assert_same_training(directory: Path, reference: list[dict[str, float]]) -> None:
    lines = step_lines(directory)
    assert [line["sample_id_sum"] for line in lines] == [line["sample_id_sum"] for line in reference]
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in reference], rel=1e-3)


def launch(store: Path, *arguments: str) -> list[str]:
    """The launcher's command line."""
    script = str(REPOSITORY / "launch_distributed_training.sh")
    return [script, *TINY, "--data", str(store), "--steps", str(STEPS), *arguments]


def test_a_batch_script_starts_all_nodes_through_srun(slurm, tmp_path: Path, random_store, one_host):
    script = batch_script(tmp_path, 'exec "$@"')
    options = ("-W", "-N2", "--ntasks-per-node=2", "-o", "log")
    done = slurm.run(
        "sbatch",
        *options,
        script,
        *launch(random_store),
        cwd=tmp_path,
        **user(slurm),
    )
    said = (tmp_path / "log").read_text()
    assert done.returncode == 0, said
    assert "4 processes on 2 hosts, master host1:15" in said
    assert_same_training(tmp_path, one_host)
    names = [f"host{1 + rank // 2}-rank{rank}.log" for rank in range(4)]
    logs = tmp_path / "runs" / "job" / "logs"
    assert sorted(path.name for path in logs.iterdir() if "-rank" in path.name) == names


def test_a_step_of_one_task_a_node_starts_each_node_s_part(slurm, tmp_path: Path, random_store, one_host):
    step = ("srun", "-N2", "--ntasks-per-node=1", *launch(random_store, "--gpus", "2"))
    done = slurm.run(*step, cwd=tmp_path, **user(slurm))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]
    assert_same_training(tmp_path, one_host)


def test_scancel_saves_a_checkpoint_and_leaves_nothing_behind(slurm, tmp_path: Path, random_store):
    script = batch_script(tmp_path, 'exec "$@"')
    command = launch(random_store, "--gpus", "1", "--steps", "100000")
    variables = {**user(slurm)}
    done = slurm.run("sbatch", "-N3", "-o", "log", script, *command, cwd=tmp_path, **variables)
    number = done.stdout.split()[-1]
    log, deadline = tmp_path / "log", time.monotonic() + 120
    while not (log.exists() and re.search(r"step [0-9]+5/", log.read_text())):
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
        time.sleep(0.2)
    assert slurm.run("scancel", "--full", "--signal=TERM", number, cwd=tmp_path).returncode == 0
    slurm.wait_until_idle()
    assert re.search(r"saved runs/job/checkpoints/step-", log.read_text())
    for host in slurm.network.hosts:
        host.wait_until_idle(limit_s=15)
