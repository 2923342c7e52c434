"""A run that was stopped or killed goes on as if nothing had happened."""

import json
import re
import signal
import time

import pytest
from safetensors.torch import load_file

from tests.support.jobs.jobs import SHARED_OUT, TINY, run_job, step_lines, zero_flags

ARGUMENTS = ("--steps", "24", "--checkpoint-interval", "6", "--optimizer", "adamw")


@pytest.fixture(scope="module")
def undisturbed(zygote, tmp_path_factory, random_store):
    directory = tmp_path_factory.mktemp("undisturbed")
    zygote.run_job(directory, random_store, 2, *ARGUMENTS)
    return directory


def tensors(directory):
    """The last checkpoint's weights and optimizer state as bytes by name."""
    path = directory / "runs" / "job" / "checkpoints" / "step-00000024"
    return {
        (file, name): tensor.numpy().tobytes()
        for file in ("weights.safetensors", "optimizer.safetensors")
        for name, tensor in load_file(path / file).items()
    }


@pytest.mark.slow  # test_kills.py kills as hard
def test_a_killed_run_ends_bit_for_bit_as_an_undisturbed_one(zygote, tmp_path, random_store, undisturbed):
    """kill -9 of all ranks once a checkpoint is there; then the same command again.

    torchrun starts the ranks that go on, the zygote forked those of the undisturbed run: both compute the
    same bits.
    """
    job = zygote.start(tmp_path, 2, [*TINY, "--data", str(random_store), *ARGUMENTS])
    checkpoints = tmp_path / "runs" / "job" / "checkpoints"
    while not list(checkpoints.glob("step-*")) and job.is_running():
        time.sleep(0.002)
    job.kill()
    assert job.wait() == [-signal.SIGKILL] * 2, job.output()[-4000:]
    output = run_job(tmp_path, random_store, 2, *ARGUMENTS)
    assert "resumed from" in output
    assert step_lines(tmp_path) == step_lines(undisturbed)
    assert tensors(tmp_path) == tensors(undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_is_answered_with_a_checkpoint_of_the_step_that_was_done(
    zygote, tmp_path, random_store, number
):
    arguments = [*TINY, "--data", str(random_store), "--steps", "100000", "--log-interval", "1"]
    job = zygote.start(tmp_path, 1, arguments)
    metrics = tmp_path / "runs" / "job" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send(number)
    assert job.wait(60) == [128 + number], job.output()[-2000:]
    done = step_lines(tmp_path)[-1]["step"]
    state = json.loads((tmp_path / f"runs/job/checkpoints/step-{done:08d}/state.json").read_text())
    assert state["step"] == done
    heartbeat = json.loads((tmp_path / "runs/job/heartbeat/rank-00000.json").read_text())
    assert (heartbeat["phase"], heartbeat["step"]) == ("end", done)


@pytest.mark.parametrize(
    "stages",
    [
        (0, 1, 2),
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ((3, SHARED_OUT, 3), (SHARED_OUT, 3, SHARED_OUT))
        ),
    ],
)
def test_a_run_killed_and_resumed_at_other_ranks_and_zero_stages_goes_on(
    zygote, tmp_path, random_store, undisturbed, stages
):
    """The same run: 2 ranks, killed; 1 rank, killed; 3 ranks."""
    checkpoints = tmp_path / "runs" / "job" / "checkpoints"
    saved_by: list[str] = []
    for ranks, stage in zip((2, 1, 3), stages, strict=True):
        arguments = [*TINY, "--data", str(random_store), *ARGUMENTS, *zero_flags(stage)]
        job = zygote.start(tmp_path, ranks, arguments)
        is_last, known = len(saved_by) == 2, set(checkpoints.glob("step-*"))
        while not is_last and job.is_running() and set(checkpoints.glob("step-*")) == known:
            time.sleep(0.002)
        if not is_last:
            job.kill()
        assert job.wait() == [0 if is_last else -signal.SIGKILL] * ranks, job.output()[-4000:]
        saved_by += re.findall(r"resumed from step \d+, saved by (\d) ranks?", job.output()) or ["none"]
    assert saved_by == ["none", "2", "1"]
    for line, expected in zip(step_lines(tmp_path), step_lines(undisturbed), strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)


def test_a_fresh_start_goes_beside_the_run(zygote, tmp_path, random_store):
    for extra in ((), ("--fresh-start",)):
        zygote.run_job(tmp_path, random_store, 1, "--steps", "2", *extra)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["job", "job-2"]
    assert step_lines(tmp_path) == step_lines(tmp_path, "job-2")
