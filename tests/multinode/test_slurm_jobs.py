"""The launcher under a real SLURM of three nodes: environments, salloc, sbatch, srun, warnings, scancel."""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from alphazero.base.errors import LaunchError
from alphazero.launch.plan.outer import SlurmJob, read_slurm
from tests.support.hosts.hosts import Network, cannot_run
from tests.support.hosts.real_job import LAUNCH, STEPS, Job, rank_names
from tests.support.hosts.slurm_cluster import SlurmCluster, why_not
from tests.support.jobs.jobs import run_job, step_lines
from tests.support.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SALLOC = ("salloc", "--nodes=2")
SRUN = ("srun", "--nodes=2", "--ntasks-per-node=1", "--export=ALL")
SBATCH = ("sbatch", "--nodes=2", "--wait", "--output=batch.log")
MANY_STEPS = 100000
SCRIPT = str(REPOSITORY / "train_distributed.py")


@pytest.fixture(scope="module")
def slurm(namespaces, tmp_path_factory):
    """Three nodes of two cores."""
    if reason := why_not():
        cannot_run(reason)
    network = Network.build(tmp_path_factory.mktemp("network"), 3)
    try:
        yield SlurmCluster.start(network)
    finally:
        network.end()


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
    with pytest.raises(LaunchError, match=r"one task per"):
        read_as((tmp_path / "many.txt").read_text())


def batch_script(directory: Path, line: str) -> str:
    """Path of a script that sbatch takes."""
    path = directory / "job.sh"
    path.write_text(f"#!/bin/sh\n{line}\n")
    return str(path)


def start(slurm: SlurmCluster, directory: Path, store: Path, prefix: tuple[str, ...], *more: str) -> Job:
    """The launcher behind salloc or srun, or in a script of sbatch; output is what the launcher says."""
    if prefix[0] != "sbatch":
        return Job(slurm.login, directory, store, *more, program=(*prefix, LAUNCH))
    script = batch_script(directory, f'exec {shlex.quote(LAUNCH)} "$@"')
    job = Job(slurm.login, directory, store, *more, program=(*prefix, script))
    job.output = directory / "batch.log"
    job.output.touch()
    return job


@pytest.fixture(scope="module")
def one_host(namespaces, tmp_path_factory, random_store):
    """Figures of 4 ranks on one host."""
    directory = tmp_path_factory.mktemp("one-host")
    run_job(directory, random_store, 4, "--steps", str(STEPS))
    return step_lines(directory)


@pytest.mark.parametrize(
    ("prefix", "arguments"),
    [
        (SALLOC, ("--gpus", "2")),
        ((*SBATCH, "--ntasks-per-node=2"), ()),  # the processes of a node are its tasks
        (SRUN, ("--gpus", "2")),
    ],
    ids=["salloc", "sbatch", "srun"],
)
def test_a_job_on_two_nodes_has_the_losses_of_one_host(
    slurm, tmp_path: Path, random_store, one_host, prefix: tuple[str, ...], arguments: tuple[str, ...]
):
    status, said = start(slurm, tmp_path, random_store, prefix, *arguments).end()
    assert status == 0, said + slurm.logs()
    if prefix[0] != "srun":  # there each task speaks of its own part
        assert "4 processes on 2 hosts, master host1:15" in said
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]
    lines = step_lines(tmp_path)
    assert len(lines) == STEPS
    for line, expected in zip(lines, one_host, strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)
    assert lines[0]["loss"] == pytest.approx(one_host[0]["loss"], rel=1e-6)
    logs = tmp_path / "runs" / "job" / "logs"
    assert sorted(path.name for path in logs.iterdir() if "-rank" in path.name) == rank_names(2)
    slurm.wait_until_free()


def test_tasks_of_srun_are_the_ranks_of_one_job(slurm, tmp_path: Path, random_store, one_host):
    """The trainer itself behind srun, a task for each rank."""
    tasks = ("srun", "--nodes=2", "--ntasks-per-node=2", "--export=ALL", sys.executable, SCRIPT)
    job = Job(slurm.login, tmp_path, random_store, program=tasks)
    status, said = job.end()
    assert status == 0, said + slurm.logs()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["job"]
    losses = [line["loss"] for line in step_lines(tmp_path)]
    assert losses == pytest.approx([line["loss"] for line in one_host], rel=1e-3)
    slurm.wait_until_free()


def press_ctrl_c(slurm: SlurmCluster) -> None:
    """What a terminal does: SIGINT to salloc and the launcher under it."""
    lines = slurm.login.processes()
    victims = [str(pid) for pid, line in lines.items() if re.search(r"salloc |__main__.py launch", line)]
    assert len(victims) == 2, lines
    slurm.login.run("kill", "-INT", *victims)


def scancel(*options: str) -> Callable[[SlurmCluster], None]:
    """The command that the only job gets."""

    def stop(slurm: SlurmCluster) -> None:
        job_id = slurm.login.run("squeue", "--noheader", "--format=%A").strip()
        slurm.login.run("scancel", *options, job_id)

    return stop


def assert_stopped(slurm: SlurmCluster, directory: Path, job: Job, expected: int) -> None:
    """Ended with a checkpoint of the step in which the request came; nothing runs any more."""
    status, _ = job.end()
    slurm.wait_until_free()
    said = job.output.read_text()
    # `sbatch --wait` takes a cancelled job for ended, with status 0, where its script still runs.
    typed = (directory / f"said-{slurm.login.name}").read_text()
    if submitted := re.search(r"Submitted batch job (\d+)", typed):
        status = slurm.exit_status(submitted[1])
    assert status == expected, said
    step = re.search(r"stopping: a signal came during step (\d+)", said)
    assert step, said
    assert (directory / "runs" / "job" / "checkpoints" / f"step-{int(step[1]):08d}").is_dir(), said
    assert "did not end well" not in said


@pytest.mark.parametrize(
    ("prefix", "stop", "expected"),
    [
        pytest.param(SALLOC, press_ctrl_c, 130, id="ctrl-c"),
        pytest.param(SBATCH, scancel(), 143, id="scancel-sbatch"),
        pytest.param(SRUN, scancel(), 143, id="scancel-srun"),
        # What --signal=B:TERM@60 sends, and B:USR1@60: to the launcher alone.
        pytest.param(SBATCH, scancel("--batch", "--signal=TERM"), 143, id="batch-term"),
        pytest.param(SBATCH, scancel("--batch", "--signal=USR1"), 138, id="batch-usr1"),
        # What --signal=USR1@60 sends: to all steps, that is to the agents and all below.
        pytest.param(SALLOC, scancel("--signal=USR1"), 138, id="salloc-usr1"),
        pytest.param(SBATCH, scancel("--signal=USR1"), 138, id="sbatch-usr1"),
        pytest.param(SRUN, scancel("--signal=USR1"), 138, id="srun-usr1"),
        pytest.param(SBATCH, scancel("--signal=TERM"), 143, id="sbatch-term"),
        pytest.param((*SBATCH, "--nodes=3"), scancel("--full", "--signal=TERM"), 143, id="full-term"),
    ],
)
def test_a_wish_to_stop_ends_the_job_with_a_checkpoint(
    slurm, tmp_path: Path, random_store, prefix: tuple[str, ...], stop, expected: int
):
    gpus = "1" if "--nodes=3" in prefix else "2"
    job = start(slurm, tmp_path, random_store, prefix, "--gpus", gpus, "--steps", str(MANY_STEPS))
    job.wait_for(r"step \d+/")
    stop(slurm)
    assert_stopped(slurm, tmp_path, job, expected)


@pytest.mark.parametrize("target", ["", "B:"])
def test_slurm_s_own_warning_before_the_time_is_over_ends_the_job_with_a_checkpoint(
    slurm, tmp_path: Path, random_store, target: str
):
    """It comes up to a minute early, as sbatch(1) says: after one minute to two of these three."""
    limit = (*SBATCH, "--time=3", f"--signal={target}USR1@60")
    job = start(slurm, tmp_path, random_store, limit, "--gpus", "2", "--steps", str(MANY_STEPS))
    assert_stopped(slurm, tmp_path, job, 138)
