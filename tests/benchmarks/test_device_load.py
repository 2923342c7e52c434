"""How busy a device is, read from NVML's real binding over a library made for tests."""

import json
import subprocess
import sys

import pytest
import torch

from benchmarks.measuring.device_load import DeviceLoad

PROGRAM = """
import json, sys, time
import torch
from benchmarks.measuring import device_load
device_load.uuid_of = lambda device: sys.argv[1]
with device_load.DeviceLoad(torch.device("cuda")) as load:
    time.sleep(1.5)
print(json.dumps([load.figures(), load.figures(since=time.perf_counter())]))
"""


def measured(gpus, uuid):
    argv = [sys.executable, "-c", PROGRAM, uuid]
    done = subprocess.run(argv, env=gpus.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_means_and_peaks_of_the_device_that_was_asked_for(gpus):
    gpus.are("gpu GPU-other\nutilisation 3\ngpu GPU-mine\nutilisation 80\npower_mw 300000\ntemperature 60\n")
    whole, nothing = measured(gpus, "GPU-mine")
    assert whole["power_w"] == 300.0 and whole["temperature_c"] == 60
    assert whole["device_idle_share"] == pytest.approx(0.2)
    assert nothing == {}


def test_a_device_that_nvml_does_not_know_is_said_to_be_so(gpus):
    gpus.are("gpu GPU-other\n")
    assert measured(gpus, "GPU-mine")[0] == {"device_load": "NVML: no device GPU-mine"}


def test_on_the_cpu_nothing_is_read():
    with DeviceLoad(torch.device("cpu")) as load:
        pass
    assert load.figures() == {}
