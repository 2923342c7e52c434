"""fp16 with its loss scale, moving averages, compiled and deterministic runs."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from alphazero.network.weights.open_network import read_weights
from tests.support.jobs.jobs import SHARED_OUT, run_job, state_of, step_lines, zero_flags

HUGE = '{"fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1}}'
# fp16 convolutions are slow on a CPU.
SMALL = ("--batch-size", "16", "--micro-batch-size", "8")


@pytest.mark.parametrize(("ranks", "stage"), [(1, 0), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_a_forced_overflow_in_fp16_lowers_the_scale_skips_the_step_and_a_resume_keeps_it(
    zygote, tmp_path, random_store, ranks, stage
):
    (tmp_path / "ds.json").write_text(HUGE)
    fp16 = ("--precision", "fp16", "--deepspeed-config", str(tmp_path / "ds.json"))
    fp16 += ("--zero-stage", str(stage), *SMALL)
    output = zygote.run_job(tmp_path, random_store, ranks, "--steps", "16", *fp16)
    assert "step 1 skipped: fp16" in output
    state = state_of(tmp_path, ".", 16)
    skipped, scale = state["skipped_steps"], state["loss_scale"]["scale"]
    assert 0 < skipped < 13
    assert scale == 2.0 ** (24 - skipped)
    lines = step_lines(tmp_path)
    assert len(lines) == 16 - skipped
    assert all(math.isfinite(line["loss"]) for line in lines)
    output = zygote.run_job(tmp_path, random_store, ranks, "--steps", "17", *fp16)
    last = step_lines(tmp_path)[-1]
    assert (last["step"], last["loss_scale"]) == (17, scale) or f"loss scale {scale:g} -> " in output


@pytest.mark.slow
def test_fp16_learns_what_fp32_learns_nearly(zygote, tmp_path, random_store):
    for precision in ("fp32", "fp16", "bf16"):
        zygote.run_job(
            tmp_path / precision, random_store, 1, "--steps", "8", "--precision", precision, *SMALL
        )
    fp32, fp16, bf16 = (step_lines(tmp_path / name)[-1]["loss"] for name in ("fp32", "fp16", "bf16"))
    assert fp16 == pytest.approx(fp32, rel=0.003)
    assert bf16 == pytest.approx(fp32, rel=0.02)


@pytest.mark.parametrize(
    ("ranks", "stage"), [(1, 0), *(pytest.param(2, one, marks=pytest.mark.slow) for one in (3, SHARED_OUT))]
)
def test_the_moving_average_is_that_of_the_weights_of_every_step(
    zygote, tmp_path, random_store, ranks, stage
):
    """Recomputed from checkpoints of all steps; resumed half-way; the weights file holds the average."""
    arguments = ("--ema-decay", "0.8", "--checkpoint-interval", "1", "--keep-checkpoints", "99")
    arguments += (*zero_flags(stage), "--validation-interval", "6")
    zygote.run_job(tmp_path, random_store, ranks, "--steps", "6", *arguments)
    zygote.run_job(tmp_path, random_store, ranks, "--steps", "12", *arguments)
    paths = sorted((tmp_path / "runs/job/checkpoints").glob("step-*"))
    saved = [load_file(path / "weights.safetensors") for path in paths]
    averages = [load_file(path / "ema.safetensors") for path in paths]
    name = "blocks.1.first.conv.weight"
    for step in range(1, 12):
        decay = min(0.8, (1 + step) / (10 + step))
        for key in (name, "blocks.1.first.norm.running_var"):
            expected = decay * averages[step - 1][key] + (1 - decay) * saved[step][key]
            torch.testing.assert_close(averages[step][key], expected, rtol=1e-5, atol=1e-6)
    newest = read_weights(tmp_path / "runs/job/AlphaZeroNet_2x16_distributed.pt")
    assert torch.equal(newest.state_dict[name], averages[-1][name])
    assert not torch.equal(averages[-1][name], saved[-1][name])
    assert newest.metadata["averaged"] is True


ATTENTION = (
    *("--body", "attention", "--blocks", "2", "--filters", "32", "--heads", "4", "--ffn-width", "48"),
    *("--smolgen-channels", "2", "--activation-checkpointing", "scores"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "body"), [(0, ()), (1, ()), (2, ()), (0, ATTENTION), (2, ATTENTION)])
@pytest.mark.timeout(600)
def test_a_compiled_network_trains_the_same(zygote, tmp_path, random_store, stage, body):
    arguments = ("--steps", "10", "--zero-stage", str(stage), *body)
    zygote.run_job(tmp_path / "plain", random_store, 1, *arguments)
    compiled = ("--compile", "--validation-interval", "5")
    zygote.run_job(tmp_path / "compiled", random_store, 1, *arguments, *compiled, timeout_s=280)
    plain, compiled = (
        [line["loss"] for line in step_lines(tmp_path / name)] for name in ("plain", "compiled")
    )
    assert compiled == pytest.approx(plain, rel=1e-4)


@pytest.mark.slow
def test_deterministic_runs_are_equal_bit_for_bit(tmp_path, random_store):
    for name in ("one", "two"):
        run_job(tmp_path / name, random_store, 1, "--steps", "6", "--deterministic", threads=2)
    one, two = (
        (tmp_path / name / "runs/job/checkpoints/step-00000006/weights.safetensors").read_bytes()
        for name in ("one", "two")
    )
    assert one == two


def test_the_weights_file_loads_in_plain_torch(zygote, tmp_path, random_store):
    zygote.run_job(tmp_path, random_store, 1, "--steps", "2")
    content = torch.load(tmp_path / "runs/job/AlphaZeroNet_2x16_distributed.pt", weights_only=True)
    checkpoint = load_file(tmp_path / "runs/job/checkpoints/step-00000002/weights.safetensors")
    assert content["state_dict"].keys() == checkpoint.keys()
    assert json.loads(json.dumps(content["network"]))["filters"] == 16
