"""torchrun and deepspeed typed by hand on several hosts, without our launcher."""

import os
import shutil
import signal
import sys
import time

import pytest

from tests.support.hosts.hosts import cannot_run
from tests.support.hosts.real_job import STEPS, Job, assert_idle, write_hostfile
from tests.support.jobs.jobs import run_job, step_lines
from tests.support.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = str(REPOSITORY / "train_distributed.py")


@pytest.fixture(scope="module")
def one_host(namespaces, tmp_path_factory, random_store):
    """Losses of 4 ranks on one host."""
    directory = tmp_path_factory.mktemp("one-host")
    run_job(directory, random_store, 4, "--steps", str(STEPS))
    return [line["loss"] for line in step_lines(directory)]


def losses(directory):
    return [line["loss"] for line in step_lines(directory)]


def start_torchrun(hosts, directory, store, *more: str) -> list[Job]:
    jobs = []
    for rank, host in enumerate(hosts.hosts):
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--nnodes=2")
        place = (f"--node_rank={rank}", "--master_addr=10.213.57.1", "--master_port=12355")
        jobs.append(Job(host, directory, store, *more, program=(*torchrun, *place, SCRIPT)))
    return jobs


def test_torchrun_typed_on_each_host(network, tmp_path, random_store, one_host):
    hosts = network(2)
    for job in start_torchrun(hosts, tmp_path, random_store):
        status, said = job.end()
        assert status == 0, said
    assert losses(tmp_path) == pytest.approx(one_host, rel=1e-3)
    assert_idle(hosts)


def test_a_signal_to_one_torchrun_is_no_success_on_the_other(network, tmp_path, random_store):
    hosts = network(2)
    jobs = start_torchrun(hosts, tmp_path, random_store, "--steps", "5000")
    jobs[0].wait_for("step 5/")
    jobs[1].signal("INT", "torch.distributed.run")
    for job in jobs:
        status, said = job.end()
        assert status == 1, said  # torchrun's own, for whatever its ranks return
        assert "continue with: " in said
    assert "a signal came" in jobs[0].output.read_text()
    assert_idle(hosts)


@pytest.fixture
def deepspeed(network, tmp_path, random_store):
    """Starts DeepSpeed's own runner, over pdsh and ssh, on the first of two hosts."""
    if shutil.which("pdsh") is None:
        cannot_run("DeepSpeed's runner needs pdsh for several hosts")
    hosts = network(2)
    write_hostfile(tmp_path, 2)
    runner = (sys.executable, "-m", "deepspeed.launcher.runner", "--hostfile", "hostfile", SCRIPT)
    config = ("--deepspeed_config", str(REPOSITORY / "ds_config.json"))

    def start(*more: str) -> Job:
        return Job(hosts.hosts[0], tmp_path, random_store, *config, *more, program=runner)

    yield start
    assert_idle(hosts)


def test_deepspeed_typed_on_the_head(deepspeed, tmp_path, one_host):
    status, said = deepspeed().end()
    assert status == 0, said
    assert losses(tmp_path) == pytest.approx(one_host, rel=1e-3)


def test_ctrl_c_at_deepspeeds_runner_is_answered_with_a_checkpoint(deepspeed, tmp_path):
    """pdsh and ssh end at once, the ranks behind them get SIGTERM, and what they print has no reader."""
    job = deepspeed("--steps", "5000", "--checkpoint-interval", "5000")
    job.wait_for("step 5/")
    os.killpg(job.process.pid, signal.SIGINT)
    status, said = job.end()
    assert status != 0, said
    (run,) = (tmp_path / "runs").iterdir()
    deadline = time.monotonic() + 40
    while "continue with: " not in (said := (run / "log.txt").read_text()):
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    assert list((run / "checkpoints").glob("step-*"))
    status, said = deepspeed("--steps", "1").end()
    assert "is complete at " in said, said
