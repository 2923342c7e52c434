"""Gradients of the 20x256 network travel in several buckets, which change no bit of two ranks."""

import json

import pytest
import torch

from alphazero.games.registry import get_spec
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.deepspeed_file import read_deepspeed_settings
from alphazero.settings.load import load_config
from tests.support.paths import REPOSITORY

LARGE = 100_000_000


def weights_of(directory):
    return (directory / "runs/job/checkpoints/step-00000003/weights.safetensors").read_bytes()


def test_the_full_network_has_one_bucket_for_gradients_and_one_for_its_weights():
    """At ZeRO 2 gradients then stay on the rank until the step; weights come back together."""
    with torch.device("meta"):
        network = AlphaZeroNet(load_config("chess_20x256", {}).network, get_spec("chess"))
    options = read_deepspeed_settings(REPOSITORY / "ds_config.json").zero_options
    assert options["reduce_bucket_size"] >= network.parameter_count()
    assert options["allgather_bucket_size"] >= network.parameter_count()


@pytest.mark.parametrize(
    "stage", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_steps_of_several_passes_with_many_buckets_are_those_with_one(zygote, tmp_path, random_store, stage):
    """Two ranks: a sum of two numbers has no order. At ZeRO 2 all is DeepSpeed's with overlap_comm alone."""
    for name, size in (("one", LARGE), ("many", 2_000)):
        path = tmp_path / f"{name}.json"
        sizes = {"reduce_bucket_size": size, "allgather_bucket_size": size}
        options = {"stage": stage, "overlap_comm": True, **sizes}
        path.write_text(json.dumps({"zero_optimization": options}))
        flags = ("--steps", "3", "--deepspeed_config", str(path))
        zygote.run_job(tmp_path / name, random_store, 2, *flags)
    assert weights_of(tmp_path / "one") == weights_of(tmp_path / "many")


@pytest.mark.slow
def test_where_ranks_keep_whole_gradients_stage_3_is_stage_1_to_the_bit(zygote, tmp_path, random_store):
    for stage in (1, 3):
        flags = ("--steps", "3", "--optimizer", "adamw", "--zero-stage", str(stage))
        said = zygote.run_job(tmp_path / str(stage), random_store, 2, *flags)
        assert ("ZeRO-3 with whole weights and gradients" in said) == (stage == 3)
    assert weights_of(tmp_path / "1") == weights_of(tmp_path / "3")
