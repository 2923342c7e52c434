"""A run that was stopped or killed goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import time

import pytest
from jobs import TINY, command, environment, run_job, step_lines
from safetensors.torch import load_file


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, random_store):
    directory = tmp_path_factory.mktemp("undisturbed")
    run_job(directory, random_store, 2, "--steps", "24", "--checkpoint-interval", "6", "--optimizer", "adamw")
    return directory


ARGUMENTS = ("--steps", "24", "--checkpoint-interval", "6", "--optimizer", "adamw")


def tensors(directory):
    """The last checkpoint's weights and optimizer state as bytes by name."""
    path = directory / "runs" / "job" / "checkpoints" / "step-00000024"
    return {
        (file, name): tensor.numpy().tobytes()
        for file in ("weights.safetensors", "optimizer.safetensors")
        for name, tensor in load_file(path / file).items()
    }


def test_a_killed_run_ends_bit_for_bit_as_an_undisturbed_one(tmp_path, random_store, undisturbed):
    """kill -9 of all ranks once a checkpoint is there; then the same command again."""
    arguments = [*TINY, "--data", str(random_store), *ARGUMENTS]
    job = subprocess.Popen(
        command(2, arguments),
        cwd=tmp_path,
        env=environment(),
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    latest = tmp_path / "runs" / "job" / "checkpoints" / "latest"
    deadline = time.monotonic() + 120
    while not latest.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    kill_tree(job)
    assert latest.exists()
    output = run_job(tmp_path, random_store, 2, *ARGUMENTS)
    assert "resumed from" in output
    assert step_lines(tmp_path) == step_lines(undisturbed)
    assert tensors(tmp_path) == tensors(undisturbed)


def kill_tree(job: subprocess.Popen) -> None:
    """SIGKILL to the launcher and every process below it."""
    import psutil

    processes = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_with_a_checkpoint_of_the_step_that_was_done(tmp_path, random_store, number):
    arguments = [*TINY, "--data", str(random_store), "--steps", "100000", "--log-interval", "1"]
    job = subprocess.Popen(
        command(1, arguments), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "runs" / "job" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(job.pid, number)
    _, output = job.communicate(timeout=60)
    assert job.returncode == 128 + number, output[-2000:]
    done = step_lines(tmp_path)[-1]["step"]
    state = json.loads((tmp_path / f"runs/job/checkpoints/step-{done:08d}/state.json").read_text())
    assert state["step"] == done
    heartbeat = json.loads((tmp_path / "runs/job/heartbeat/rank-00000.json").read_text())
    assert (heartbeat["phase"], heartbeat["step"]) == ("end", done)


def test_a_run_at_other_ranks_and_zero_stages_goes_on(tmp_path, random_store, undisturbed):
    for ranks, stage, steps in ((1, 0, "8"), (2, 1, "16"), (2, 2, "24")):
        run_job(tmp_path, random_store, ranks, *ARGUMENTS, "--steps", steps, "--zero-stage", str(stage))
    for line, expected in zip(step_lines(tmp_path), step_lines(undisturbed), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)


def test_a_fresh_start_goes_beside_the_run(tmp_path, random_store):
    for extra in ((), ("--fresh-start",)):
        run_job(tmp_path, random_store, 1, "--steps", "2", *extra)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["job", "job-2"]
    assert step_lines(tmp_path) == step_lines(tmp_path, "job-2")
