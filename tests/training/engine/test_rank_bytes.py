"""What ranks keep of a network in training is what the arithmetic says, at every ZeRO stage."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from alphazero.network.model.sizes import on_meta_device, rank_bytes
from alphazero.settings.deepspeed_file import DeepSpeedSettings
from alphazero.settings.load import load_config
from alphazero.training.engine.deepspeed_config import deepspeed_stage
from alphazero.training.engine.optimizer import state_numbers
from tests.support.jobs import holding
from tests.support.paths import REPOSITORY

SHARE = 0.15


def compare(num_ranks: int, stage: int, optimizer: str = "adamw", *extra: str) -> None:
    argv = [sys.executable, "-m", holding.__name__, str(num_ranks), str(stage), optimizer, *extra]
    done = subprocess.run(
        argv, cwd=REPOSITORY, env=dict(os.environ), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    network = on_meta_device(load_config("chess_1b", holding.SHAPE).network)
    config = load_config("chess_1b", {**holding.SHAPE, "zero_stage": stage})
    options = holding.WHOLE if "whole" in extra else holding.BUCKETS
    config = dataclasses.replace(config, deepspeed=DeepSpeedSettings(zero_options=options))
    moments = state_numbers(network, optimizer)
    expected = rank_bytes(network, moments, deepspeed_stage(config), num_ranks)
    for held in json.loads(done.stdout.splitlines()[-1]):
        assert held == pytest.approx(expected, rel=SHARE)


def test_the_network_is_a_hundredth_of_the_largest_preset() -> None:
    small, large = (
        on_meta_device(load_config("chess_1b", flags).network).parameter_count()
        for flags in (holding.SHAPE, {})
    )
    assert small == pytest.approx(large / 100, rel=0.1)


@pytest.mark.slow
def test_two_ranks_keep_what_is_computed() -> None:
    compare(2, stage=2)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_four_ranks_keep_what_is_computed(stage: int, optimizer: str) -> None:
    compare(4, stage, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_ranks_that_keep_whole_gradients_hold_what_they_do_at_stage_1(stage: int) -> None:
    compare(4, stage, "adamw", "whole")
