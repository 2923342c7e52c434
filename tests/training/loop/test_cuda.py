"""The same code on a CUDA device: results of the CPU within rounding, and every switch of training."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from alphazero.games.registry import get_spec, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig
from tests.support.data.stores import write_random_store
from tests.support.gpu import DEVICE, LIMIT_S, PRECISIONS, REHEARSAL, on_cuda, on_gpu
from tests.support.jobs.jobs import SHARED_OUT, state_of, step_lines, zero_flags
from tests.support.paths import SUPPORT

AT_ONCE = ("--lr-schedule", "constant", "--warmup-steps", "1")
OPTIMIZERS = {
    "sgd": ("--optimizer", "sgd", "--learning-rate", "0.05", *AT_ONCE),
    "adamw": ("--optimizer", "adamw", "--learning-rate", "0.003", *AT_ONCE),
}
# One game of 120 plies, all of it in every step.
PLIES = 120
ONE_BATCH = (
    *("--batch-size", str(PLIES), "--micro-batch-size", str(PLIES // 2), "--steps", "40"),
    *("--optimizer", "adamw", "--learning-rate", "0.01", *AT_ONCE),
)
SELF_PLAY = (
    *("--config", "connect4", "--blocks", "1", "--filters", "8", "--run-name", "job"),
    *("--generations", "2", "--steps-per-generation", "3", "--reuse", "1", "--lanes", "10"),
    *("--simulations-per-round", "40", "--simulations", "6", "--evaluation-batch", "8"),
    *("--window-minimum", "100"),
    *("--batch-size", "32", "--micro-batch-size", "16", "--validation-interval", "0", "--no-tensorboard"),
)
HUGE = '{"fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1}}'


def checkpoint(directory, step, file="weights.safetensors"):
    return (directory / f"runs/job/checkpoints/step-{step:08d}" / file).read_bytes()


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory, random_store, gpu_jobs):
    """Ten steps on the CPU by each optimizer."""
    found = {}
    for optimizer, flags in OPTIMIZERS.items():
        directory = tmp_path_factory.mktemp("cpu")
        gpu_jobs.run(directory, random_store, "--steps", "10", *flags, device="cpu")
        found[optimizer] = step_lines(directory)
        losses = [line["loss"] for line in found[optimizer]]
        assert losses[-1] < 0.97 * losses[0], "too little is learned to tell optimizers apart"
    return found


@pytest.fixture(scope="module")
def one_game(tmp_path_factory):
    """A store whose positions are one batch."""
    path = tmp_path_factory.mktemp("one") / "game"
    write_random_store(path, num_games=1, first_seed=1)
    return path


def learn_by_heart(jobs, directory, game, *extra):
    """The same batch in every step: the loss falls to less than a third."""
    jobs.run(directory, game, *ONE_BATCH, "--validation-data", str(game), *extra)
    lines = step_lines(directory)
    assert len({line["sample_id_sum"] for line in lines}) == 1
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-5:]) < losses[0] / 3, losses


@on_gpu(order=1)
def test_the_evaluator_says_on_cuda_what_it_says_on_the_cpu():
    spec = get_spec("chess")
    network = AlphaZeroNet(NetworkConfig(blocks=4, filters=64), spec, torch.Generator().manual_seed(1))
    line = make_line("chess")
    packed, index = line.packed()[None], line.legal_indices()
    offset = np.array([0, len(index)], np.int32)
    on_cpu, on_cuda = (
        NetworkEvaluator(network, torch.device(device), "fp32", 4)(packed, index, offset)
        for device in ("cpu", DEVICE)
    )
    np.testing.assert_allclose(on_cuda.legal_logits, on_cpu.legal_logits, atol=1e-3)
    np.testing.assert_allclose(on_cuda.wdl, on_cpu.wdl, atol=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stage", [0, 1, 2, 3, SHARED_OUT])
@on_gpu(order=1)
def test_a_job_on_cuda_trains_what_the_cpu_trains(
    tmp_path, random_store, gpu_jobs, on_the_cpu, stage, optimizer
):
    """In fp32 without TF32; ZeRO's channels last with it. NCCL has this one rank."""
    flags = ("--steps", "10", *zero_flags(stage), "--no-tf32", *OPTIMIZERS[optimizer])
    output = gpu_jobs.run(tmp_path, random_store, *flags)
    assert REHEARSAL or "nccl" in output
    for line, expected in zip(step_lines(tmp_path), on_the_cpu[optimizer], strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)


@pytest.mark.parametrize("extra", [(), ("--zero-stage", "2"), ("--ema-decay", "0.9")])
@pytest.mark.parametrize("precision", PRECISIONS)
@on_gpu(order=2)
def test_every_precision_on_cuda_learns_one_batch_by_heart(tmp_path, one_game, gpu_jobs, precision, extra):
    learn_by_heart(gpu_jobs, tmp_path, one_game, "--precision", precision, *extra)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@on_cuda(order=7, seconds=90)
def test_a_compiled_network_learns_one_batch_by_heart(tmp_path, one_game, gpu_jobs, precision):
    learn_by_heart(gpu_jobs, tmp_path, one_game, "--precision", precision, "--compile")


@pytest.mark.parametrize("stage", [0, SHARED_OUT])
@on_gpu(order=1)
def test_a_run_with_an_average_is_validated_on_the_device(tmp_path, random_store, gpu_jobs, stage):
    flags = ("--ema-decay", "0.9", "--validation-interval", "3", *zero_flags(stage))
    output = gpu_jobs.run(
        tmp_path, random_store, "--steps", "6", *flags, "--validation-data", str(random_store)
    )
    assert "validation at step 3 |" in output and "validation at step 6 |" in output
    path = tmp_path / "runs/job/checkpoints/step-00000006"
    weights, averages = load_file(path / "weights.safetensors"), load_file(path / "ema.safetensors")
    assert not all(torch.equal(averages[name], weights[name]) for name in averages)


@on_gpu(order=2, seconds=40)
def test_a_resumed_run_ends_bit_for_bit_as_an_undisturbed_one(tmp_path, random_store, gpu_jobs):
    """AdamW's moments, the average and BatchNorm's statistics among what is compared."""
    flags = ("--deterministic", "--optimizer", "adamw", "--ema-decay", "0.9", "--checkpoint-interval", "3")
    flags += ("--lr-schedule", "constant", "--warmup-steps", "2")
    gpu_jobs.run(tmp_path / "whole", random_store, "--steps", "6", *flags)
    gpu_jobs.run(tmp_path / "cut", random_store, "--steps", "3", *flags)
    assert "resumed from" in gpu_jobs.run(tmp_path / "cut", random_store, "--steps", "6", *flags)
    for file in ("weights.safetensors", "optimizer.safetensors", "ema.safetensors"):
        assert checkpoint(tmp_path / "cut", 6, file) == checkpoint(tmp_path / "whole", 6, file), file


@on_gpu(order=2)
def test_an_overflow_in_fp16_lowers_the_scale_and_skips_the_step(tmp_path, random_store, gpu_jobs):
    (tmp_path / "ds.json").write_text(HUGE)
    flags = ("--precision", "fp16", "--deepspeed-config", str(tmp_path / "ds.json"))
    output = gpu_jobs.run(tmp_path, random_store, "--steps", "16", *flags)
    assert "step 1 skipped: fp16" in output
    state = state_of(tmp_path, ".", 16)
    assert 0 < state["skipped_steps"] < 16
    assert state["loss_scale"]["scale"] == 2.0 ** (24 - state["skipped_steps"])
    assert all(np.isfinite(line["loss"]) for line in step_lines(tmp_path))


@on_gpu(order=2)
def test_games_are_played_on_the_device_and_trained_on(tmp_path, gpu_jobs):
    precision = "fp32" if REHEARSAL else "bf16"
    arguments = [*SELF_PLAY, "--device", DEVICE, "--precision", precision]
    job = gpu_jobs.zygote.start(tmp_path, 1, arguments, variables=gpu_jobs.visible())
    assert job.wait(LIMIT_S) == [0], job.output()[-4000:]
    assert [line["step"] for line in step_lines(tmp_path)] == list(range(1, 7))
    assert (tmp_path / "runs/job/games").is_dir()


@on_cuda(order=6, seconds=60, alone=True)
def test_memory_that_does_not_suffice_is_answered_by_smaller_micro_batches(tmp_path, random_store, gpu_jobs):
    """131,072 positions through 20x256 need some 400 GB of activations."""
    large = ("--blocks", "20", "--filters", "256", "--batch-size", "131072", "--micro-batch-size", "131072")
    output = gpu_jobs.run(tmp_path, random_store, "--steps", "1", *large)
    assert "131072 do not fit" in output
    assert "stays 131072" in output


@on_cuda(order=6, seconds=30, alone=True)
def test_a_gpu_that_fills_up_during_training_is_answered_by_smaller_micro_batches(
    tmp_path, random_store, gpu_jobs, monkeypatch
):
    """The allocator itself refuses in step 4: 1,024 positions of 4x128 want more than 64 MiB."""
    monkeypatch.setenv("DISTURBANCE", "spare:64")
    large = ("--blocks", "4", "--filters", "128", "--batch-size", "1024", "--micro-batch-size", "1024")
    script = SUPPORT / "jobs" / "disturbed.py"
    output = gpu_jobs.run(tmp_path, random_store, "--steps", "6", *large, script=script)
    assert "rank 0 in step 4" in output
    assert [line["step"] for line in step_lines(tmp_path)] == list(range(1, 7))
    assert state_of(tmp_path, ".", 6)["micro_batch_size"] < 1024


@on_gpu(order=3, seconds=30)
def test_a_return_to_the_last_checkpoint_records_its_passes_anew(tmp_path, random_store, gpu_jobs):
    """The first engine is gone by then, with its recordings."""
    flags = ("--steps", "10", "--max-skipped-steps", "2", "--checkpoint-interval", "4")
    script, variables = SUPPORT / "jobs" / "disturbed.py", {"DISTURBANCE": "nan:5-6"}
    output = gpu_jobs.run(tmp_path, random_store, *flags, script=script, variables=variables)
    assert "back to step 4" in output
    lines = step_lines(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert {line.get("graphed") for line in lines} == ({None} if REHEARSAL else {1.0})


@on_gpu(order=3, seconds=30)
def test_deterministic_runs_on_cuda_are_equal_bit_for_bit(tmp_path, random_store, gpu_jobs):
    for name in ("one", "two"):
        gpu_jobs.run(tmp_path / name, random_store, "--steps", "6", "--deterministic")
    assert checkpoint(tmp_path / "one", 6) == checkpoint(tmp_path / "two", 6)


@on_cuda(order=3)
def test_precision_auto_is_what_the_gpu_is_fastest_in(tmp_path, random_store, gpu_jobs):
    gpu_jobs.run(tmp_path, random_store, "--steps", "2", "--precision", "auto")
    expected = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    config = json.loads((tmp_path / "runs/job/config.json").read_text())
    assert config["training"]["precision"] == expected
