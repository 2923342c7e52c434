"""Switches of a process: each combination in a process of its own, forked from one that has torch."""

import json
import os
import subprocess
import sys

import pytest
import torch

# Of each case: the banner's lines and every switch, or what ConfigError said.
PROGRAM = """
import json, os, sys, warnings
warnings.simplefilter("error")
import torch
import torch._inductor.config  # use_deterministic_algorithms does it, in seconds: once for all
from alphazero.settings.load import load_config
from alphazero.base.errors import ConfigError
from alphazero.training.ranks.runtime import apply_device_settings

# torch 2.9 to 2.11 warn at each use of the switches of TF32; this stands for them in the others.
ANNOUNCED = "Please use the new API settings to control TF32 behavior, such as ..."

def announce(function):
    def announced(*args):
        warnings.warn(ANNOUNCED, UserWarning)
        return function(*args)
    return announced

def run(device, flags, capability, workspace):
    torch.set_float32_matmul_precision = announce(torch.set_float32_matmul_precision)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if workspace:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace
    if capability:
        torch.cuda.get_device_capability = lambda device: tuple(capability)
    try:
        lines = apply_device_settings(load_config("", flags).training, torch.device(device))
    except ConfigError as error:
        return str(error)
    warnings.simplefilter("ignore")  # torch 2.9 to 2.11 warn of every look at these switches
    with torch.backends.cudnn.flags(enabled=True):  # raises where the switches are at odds
        pass
    return {
        "lines": lines,
        "matmul": torch.backends.cuda.matmul.allow_tf32,
        "precision": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }

for name, case in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        print(json.dumps([name, run(*case)]), flush=True)
        os._exit(0)
    os.wait()
"""
AMPERE, VOLTA = [8, 0], [7, 0]
CASES = {
    "plain": ["cuda", {}, AMPERE, ""],
    "tf32 off": ["cuda", {"tf32": False}, AMPERE, ""],
    "old GPU": ["cuda", {}, VOLTA, ""],
    "deterministic": ["cuda", {"deterministic": True}, AMPERE, ""],
    "small workspace": ["cuda", {"deterministic": True}, AMPERE, ":16:8"],
    "wrong workspace": ["cuda", {"deterministic": True}, AMPERE, ":0:0"],
    "cpu": ["cpu", {}, None, ""],
    "cpu deterministic": ["cpu", {"deterministic": True}, None, ""],
}


def run_cases(cases):
    argv = [sys.executable, "-c", PROGRAM, json.dumps(cases)]
    done = subprocess.run(argv, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert found.keys() == cases.keys(), done.stderr
    return found


@pytest.fixture(scope="module")
def found():
    return run_cases(CASES)


@pytest.mark.parametrize(("name", "on"), [("plain", True), ("tf32 off", False)])
def test_tf32_is_one_switch_for_products_and_convolutions(found, name, on):
    switches = found[name]
    assert (switches["matmul"], switches["cudnn_tf32"]) == (on, on)
    assert switches["precision"] == ("high" if on else "highest")
    assert switches["lines"] == [f"TF32 {'on' if on else 'off'}, cudnn autotune on"]
    assert switches["benchmark"] and not switches["deterministic"] and not switches["cudnn_deterministic"]


def test_a_gpu_without_tf32_is_not_said_to_have_it(found):
    assert "none, cudnn" in found["old GPU"]["lines"][0]


def test_deterministic_turns_autotune_off_and_fixes_cublas(found):
    switches = found["deterministic"]
    assert switches["deterministic"] and switches["cudnn_deterministic"] and not switches["benchmark"]
    assert switches["workspace"] == ":4096:8"
    assert switches["lines"][0] == "TF32 on, cudnn autotune off"
    assert switches["lines"][1].startswith("deterministic: ") and ":4096:8" in switches["lines"][1]


def test_a_deterministic_workspace_of_the_user_is_kept_and_another_refused(found):
    assert found["small workspace"]["workspace"] == ":16:8"
    assert found["wrong workspace"].startswith("CUBLAS_WORKSPACE_CONFIG=:0:0: ")


def test_on_the_cpu_fp32_stays_fp32(found):
    assert found["cpu"]["precision"] == "highest" and found["cpu"]["workspace"] is None
    assert found["cpu"]["lines"] == []


def test_deterministic_on_the_cpu_is_true_there_too(found):
    switches = found["cpu deterministic"]
    assert switches["deterministic"] and switches["workspace"] is None
    assert switches["lines"][0].startswith("deterministic: ")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_real_gpu_the_switches_take_without_a_warning():
    switches = run_cases({"real": ["cuda", {"deterministic": True}, None, ""]})["real"]
    assert switches["deterministic"] and switches["cudnn_tf32"] == switches["matmul"]
