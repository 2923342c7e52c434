"""The same code on a CUDA device: results of the CPU within rounding."""

import numpy as np
import pytest
import torch

from alphazero.config import NetworkConfig
from alphazero.games.registry import get_spec, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.resnet import AlphaZeroNet
from tests.support.jobs.jobs import run_job, step_lines

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def test_the_evaluator_says_on_cuda_what_it_says_on_the_cpu():
    spec = get_spec("chess")
    network = AlphaZeroNet(NetworkConfig(blocks=4, filters=64), spec, torch.Generator().manual_seed(1))
    line = make_line("chess")
    packed, index = line.packed()[None], line.legal_indices()
    offset = np.array([0, len(index)], np.int32)
    on_cpu, on_cuda = (
        NetworkEvaluator(network, spec, torch.device(device), "fp32", 4)(packed, index, offset)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(on_cuda.legal_logits, on_cpu.legal_logits, atol=1e-3)
    np.testing.assert_allclose(on_cuda.wdl, on_cpu.wdl, atol=1e-4)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_job_on_cuda_trains_what_the_cpu_trains(tmp_path, random_store, stage):
    run_job(tmp_path / "cpu", random_store, 1, "--steps", "10", "--device", "cpu")
    arguments = ("--steps", "10", "--device", "cuda", "--zero-stage", str(stage))
    run_job(tmp_path / "cuda", random_store, 1, *arguments, devices=None)
    for line, expected in zip(step_lines(tmp_path / "cuda"), step_lines(tmp_path / "cpu"), strict=True):
        assert line["sample_id_sum"] == expected["sample_id_sum"]
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-3)


@pytest.mark.parametrize("extra", [(), ("--compile",), ("--zero-stage", "2"), ("--ema-decay", "0.9")])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_precision_on_cuda_learns(tmp_path, random_store, precision, extra):
    run_job(tmp_path, random_store, 1, "--steps", "30", "--precision", precision, *extra, devices=None)
    losses = [line["loss"] for line in step_lines(tmp_path)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_memory_that_does_not_suffice_is_answered_by_smaller_micro_batches(tmp_path, random_store):
    """131,072 positions through 20x256 need some 400 GB of activations."""
    large = ("--blocks", "20", "--filters", "256", "--batch-size", "131072", "--micro-batch-size", "131072")
    output = run_job(tmp_path, random_store, 1, "--steps", "1", *large, devices=None)
    assert "changed arithmetic: micro-batches of 131072 do not fit into device memory" in output
    assert "the global batch stays 131072" in output


def test_deterministic_runs_on_cuda_are_equal_bit_for_bit(tmp_path, random_store):
    for name in ("one", "two"):
        run_job(tmp_path / name, random_store, 1, "--steps", "6", "--deterministic", devices=None)
    one, two = (
        (tmp_path / name / "runs/job/checkpoints/step-00000006/weights.safetensors").read_bytes()
        for name in ("one", "two")
    )
    assert one == two
