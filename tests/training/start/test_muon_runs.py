"""Muon makes the same steps at every ZeRO stage, on any ranks, and after a resume at another stage."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.jobs.jobs import LIMIT

BODY = ("--body", "attention", "--blocks", "2", "--filters", "32", "--heads", "4", "--ffn-width", "48")
BATCH = ("--batch-size", "64", "--micro-batch-size", "16", "--warmup-steps", "1")
STEPS = 10
# Far below the norms of these gradients: what clips after the matrices are orthogonal moves less.
CLIPPING = 0.05
MUON = ("--optimizer", "muon", "--learning-rate", "0.001")


@pytest.fixture(scope="module")
def ds_config(tmp_path_factory) -> Path:
    """What has no flag."""
    path = tmp_path_factory.mktemp("config") / "ds_config.json"
    # At ZeRO 3 DeepSpeed shares the weights out, which puts the parts of a matrix elsewhere.
    path.write_text(json.dumps({"gradient_clipping": CLIPPING, "zero_optimization": {LIMIT: 1000}}))
    return path


def train(zygote, directory: Path, store: Path, config: Path, ranks: int, *flags: str) -> None:
    """A job of STEPS steps, or of those that flags name."""
    given = ("--steps", str(STEPS), *BODY, *BATCH, *MUON, "--deepspeed_config", str(config), *flags)
    zygote.run_job(directory, store, ranks, *given)


def tensors(directory: Path, kind: str, step: int = STEPS) -> dict[str, torch.Tensor]:
    """The weights or the optimizer's state of a checkpoint."""
    return load_file(directory / "runs" / "job" / "checkpoints" / f"step-{step:08d}" / f"{kind}.safetensors")


@pytest.fixture(scope="module")
def one_rank(zygote, tmp_path_factory, random_store, ds_config) -> Path:
    """One rank at stage 0 adds up four passes a step."""
    directory = tmp_path_factory.mktemp("one")
    train(zygote, directory, random_store, ds_config, 1)
    return directory


def assert_same(found: Path, expected: Path) -> None:
    """Weights and optimizer state agree to rounding. The gradients of keys' biases are nothing else."""
    for kind in ("weights", "optimizer"):
        ours, theirs = tensors(found, kind), tensors(expected, kind)
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            if "key.bias" not in name:
                assert (ours[name] - tensor).norm() <= 1e-4 * tensor.norm(), (kind, name)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("stage", range(4))
def test_every_stage_on_any_ranks_ends_with_the_same_weights(
    zygote, tmp_path, random_store, ds_config, one_rank, ranks, stage
):
    train(zygote, tmp_path, random_store, ds_config, ranks, "--zero-stage", str(stage))
    assert_same(tmp_path, one_rank)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(3, 1), (0, 3), (2, 0)])
def test_a_resume_at_another_stage_goes_on_as_before(zygote, tmp_path, random_store, ds_config, first, then):
    interval = ("--checkpoint-interval", str(STEPS // 2))
    for ranks, stage, steps in ((2, first, STEPS // 2), (2, then, STEPS)):
        flags = ("--zero-stage", str(stage), "--steps", str(steps), "--lr-schedule", "constant", *interval)
        train(zygote, tmp_path / "job", random_store, ds_config, ranks, *flags)
    train(zygote, tmp_path / "whole", random_store, ds_config, 1, "--lr-schedule", "constant")
    assert_same(tmp_path / "job", tmp_path / "whole")
