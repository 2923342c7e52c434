"""Triton's kernels of squeeze-excitation without a GPU: in Triton's interpreter, and compiled for GPUs.

Each in a process of its own: Triton reads once, as it is imported, whether it interprets.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from alphazero.network.inference.kernels import trial
from alphazero.network.model import layers
from alphazero.network.model.layers import TRITON, SqueezeExcitation
from alphazero.settings.load import load_config
from alphazero.training.engine import probe

ROOT = Path(__file__).parents[3]
HAS_TRITON = importlib.util.find_spec("triton") is not None
NEEDS_TRITON = pytest.mark.skipif(not HAS_TRITON, reason="triton not installed")
# Half a unit in the last place, and as much again for a second rounding; the interpreter cuts bf16 off.
BOUNDS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 1e-6}


def run(what: str, **variables: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.network.squeeze_kernels", what],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def interpreted() -> Any:
    return run("interpret", TRITON_INTERPRET="1")


@NEEDS_TRITON
@pytest.mark.parametrize("case", range(6))
def test_outputs_and_gradients_are_those_of_the_formula_in_fp64(interpreted, case):
    precision, errors = interpreted["errors"][case]
    for name in ("output", "skip", "branch"):
        assert errors.pop(name) <= BOUNDS[precision], name
    # Sums in fp32 of what was not rounded again.
    assert len(errors) == 4 and max(errors.values()) <= 2e-6, errors


@NEEDS_TRITON
def test_nothing_passes_where_the_output_is_zero_and_bad_numbers_pass(interpreted):
    output, gradient = (interpreted["edges"][name] for name in ("output", "gradient"))
    assert output[:3] == [0.0, 0.0, 1.0] and output[3] != output[3]
    assert gradient == [0.0, 0.0, 3.0, 3.0]


@NEEDS_TRITON
def test_a_board_has_the_same_bits_in_any_company(interpreted):
    assert interpreted["in_company"]


@NEEDS_TRITON
def test_a_trial_finds_them_right_and_a_lost_shift_wrong(interpreted):
    right, wrong, of_evaluations = interpreted["trials"]
    assert right == of_evaluations == "" and wrong.startswith("their error is ")


@NEEDS_TRITON
def test_they_compile_for_gpus_and_read_16_bytes_at_a_time(tmp_path):
    made = run("compile", TRITON_CACHE_DIR=str(tmp_path))
    assert len(made) == 15
    assert all(wide for _, _, _, channels, _, wide in made if channels % 8 == 0), made


def test_where_triton_is_missing_a_trial_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "alphazero.network.model.squeeze_triton", raising=False)
    monkeypatch.setattr(probe, "TRIAL_BOARDS", 2)
    monkeypatch.setattr(SqueezeExcitation, "trained_by", "")
    monkeypatch.setattr(SqueezeExcitation, "_is_fused", lambda module, *rest: module.trained_by == TRITON)

    def call(name: str, *tensors: torch.Tensor) -> None:
        from alphazero.network.model.squeeze_triton import launch

        launch(name, *tensors)

    monkeypatch.setattr(layers, "_call", call)
    config = load_config("connect4", {"filters": 16, "se_ratio": 4, "precision": "bf16"})
    passes = probe.squeeze_passes(config, torch.device("cpu"))
    fault, _ = trial(passes, torch.bfloat16, None, TRITON)
    assert fault.startswith("ModuleNotFoundError: ") and "triton" in fault
