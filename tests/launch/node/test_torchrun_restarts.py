"""Ranks that torchrun itself starts again after one of them was killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alphazero.run.rank import read_heartbeats
from tests.support.jobs.jobs import TINY, TRAIN, environment, free_port, step_lines

NUM_STEPS = 60


def kill_a_rank(run: Path, job: subprocess.Popen[str]) -> None:
    """SIGKILL to rank 1 once there is a checkpoint to continue from."""
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoints/step-*")):
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    (beat,) = (beat for beat in read_heartbeats(run / "heartbeat") if beat.rank == 1)
    os.kill(beat.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("is_standalone", [False, True])
def test_ranks_that_torchrun_starts_again_meet(tmp_path, random_store, is_standalone):
    rendezvous = "--standalone" if is_standalone else f"--master_port={free_port()}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    trainer = [str(TRAIN), *TINY, "--data", str(random_store), "--steps", str(NUM_STEPS)]
    with subprocess.Popen(
        [*torchrun, rendezvous, *trainer, "--checkpoint-interval", "5"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        try:
            kill_a_rank(tmp_path / "runs" / "job", job)
            _, said = job.communicate(timeout=180)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, said[-4000:]
    assert len(step_lines(tmp_path)) == NUM_STEPS
