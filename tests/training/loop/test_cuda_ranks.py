"""Two ranks on one GPU over gloo, and one over NCCL: what several GPUs do, as far as one can show it.

A launcher gives every rank a device of its own; here each rank is the only one of a "host" of its own, so
that both take the first device of this one.
"""

import os
import subprocess

import pytest

from tests.support.gpu import LIMIT_S, OF_JOBS, need, on_cuda, on_gpu
from tests.support.jobs.jobs import SHARED_OUT, TINY, command, environment, step_lines, zero_flags

STEPS = ("--steps", "10", "--no-tf32")
EACH_ALONE = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}


def run_two_ranks(gpu_jobs, directory, store, *extra):
    """Both ranks to their end, each alone on its host; what they printed."""
    return gpu_jobs.run(directory, store, *STEPS, "--backend", "gloo", *extra, ranks=2, variables=EACH_ALONE)


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory, random_store, gpu_jobs):
    """The same steps of one rank on the CPU."""
    directory = tmp_path_factory.mktemp("one")
    gpu_jobs.run(directory, random_store, *STEPS, device="cpu")
    return step_lines(directory)


@pytest.mark.parametrize("stage", [0, 1, 2, 3, SHARED_OUT])
@on_gpu(order=1, seconds=30)
def test_two_ranks_on_one_gpu_train_what_one_rank_trains(tmp_path, random_store, gpu_jobs, one_rank, stage):
    output = run_two_ranks(gpu_jobs, tmp_path, random_store, *zero_flags(stage))
    assert "parameters synchronized" in output and "on 2 ranks" in output
    for line, expected in zip(step_lines(tmp_path), one_rank, strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)


@on_gpu(order=2, seconds=30)
def test_an_average_over_two_ranks_is_validated_and_saved(tmp_path, random_store, gpu_jobs):
    flags = ("--ema-decay", "0.9", "--validation-interval", "5", "--validation-data", str(random_store))
    output = run_two_ranks(gpu_jobs, tmp_path, random_store, *flags)
    assert "validation at step 10 |" in output
    assert (tmp_path / "runs/job/checkpoints/step-00000010/ema.safetensors").is_file()


@on_cuda(order=2)
def test_nccl_s_one_rank_says_so_and_meets_no_other_backend(tmp_path, random_store, gpu_jobs):
    output = gpu_jobs.run(tmp_path, random_store, *STEPS, "--backend", "nccl")
    assert "nccl" in output and "on 1 rank" in output


@on_cuda(order=4, seconds=40)
def test_the_launcher_counts_the_gpus_there_are(tmp_path, random_store):
    """--gpus -1 through the launcher, torchrun and its agent, with real NVML."""
    need(*OF_JOBS)
    argv = [
        *command(1, [])[:1],
        "-m",
        "alphazero",
        "launch",
        "--gpus",
        "-1",
        *TINY,
        "--data",
        str(random_store),
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    done = subprocess.run(
        [*argv, *STEPS],
        cwd=tmp_path,
        env={**environment(None), "CUDA_VISIBLE_DEVICES": visible},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(step_lines(tmp_path)) == 10
    assert "cuda" in done.stderr
