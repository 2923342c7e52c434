"""SIGUSR1, SLURM's warning that the time is nearly over, to a real tiny job on this machine."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.jobs.jobs import TINY, environment, step_lines

LIMIT_S = 60.0


@pytest.fixture
def job(tmp_path: Path, random_store: Path):
    """The launcher of a job of one rank that has made a step; killed with all that is below it."""
    arguments = [*TINY, "--data", str(random_store), "--steps", "100000", "--log-interval", "1"]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "alphazero", "launch", "--device", "cpu", "--gpus", "1", *arguments],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    metrics = tmp_path / "runs" / "job" / "metrics.jsonl"
    deadline = time.monotonic() + LIMIT_S
    try:
        while not (metrics.exists() and step_lines(tmp_path)):
            assert launcher.poll() is None, launcher.stderr.read()
            assert time.monotonic() < deadline, "no step"
            time.sleep(0.05)
        yield launcher
    finally:
        if launcher.poll() is None:
            for process in [*psutil.Process(launcher.pid).children(recursive=True), launcher]:
                process.kill()
        launcher.wait()
        launcher.stderr.close()


def below(launcher: subprocess.Popen) -> list[psutil.Process]:
    """torchrun, the rank."""
    found = psutil.Process(launcher.pid).children(recursive=True)
    assert len(found) >= 2, found
    return found


def assert_saved_and_gone(directory: Path, processes: list[psutil.Process]) -> None:
    """A checkpoint of the last step that was done, and no process."""
    done = step_lines(directory)[-1]["step"]
    checkpoint = directory / "runs" / "job" / "checkpoints" / f"step-{done:08d}"
    assert json.loads((checkpoint / "state.json").read_text())["step"] == done
    assert psutil.wait_procs(processes, timeout=10)[1] == []


@pytest.mark.slow
def test_the_warning_to_the_launcher_alone_ends_the_job_with_a_checkpoint(job, tmp_path: Path):
    processes = below(job)
    job.send_signal(signal.SIGUSR1)
    said = job.communicate(timeout=LIMIT_S)[1]
    assert job.returncode == 128 + signal.SIGUSR1, said
    assert "stopping: ranks" in said
    logs = "\n".join(path.read_text() for path in sorted((tmp_path / "runs" / "job" / "logs").iterdir()))
    assert "did not end well" not in said, f"{said}\n{logs}"
    assert_saved_and_gone(tmp_path, processes)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize("is_launcher_told", [True, False])
def test_a_signal_to_every_process_ends_the_job_with_a_checkpoint(
    job, tmp_path: Path, number: int, is_launcher_told: bool
):
    """A task of srun with its launcher, or a step of an allocation, without."""
    processes = below(job)
    if is_launcher_told:
        job.send_signal(number)
    for process in processes:
        process.send_signal(number)
    said = job.communicate(timeout=LIMIT_S)[1]
    assert job.returncode == 128 + number, said
    assert "did not end well" not in said
    assert_saved_and_gone(tmp_path, processes)
