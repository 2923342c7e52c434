"""The Makefile's way to install what a GPU machine needs."""

from __future__ import annotations

import subprocess

from tests.support.paths import REPOSITORY


def test_deepspeed_is_installed_without_looking_for_a_cuda_toolkit() -> None:
    # DeepSpeed 0.19.8: setup.py asks every op whether it can be compiled, and those of CUDA raise
    # MissingCUDAException on a machine with a GPU and no nvcc, unless this variable is set.
    command = ["make", "--dry-run", "--always-make", ".venv/dependencies.stamp"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if line.endswith(" deepspeed")]
    assert line.split()[0] == "DS_IGNORE_CUDA_DETECTION=1"
