"""Freed memory stays with the process: tensors that come and go cause no page faults."""

import subprocess
import sys

import pytest

from alphazero.host.allocator import keep_freed_memory

FAULTS = """
import resource, sys
import torch
from alphazero.host.allocator import keep_freed_memory
kept = keep_freed_memory({}) if sys.argv[1] == "keep" else None
if kept is False:
    sys.exit("this C library has no mallopt")
def step():
    tensors = [torch.zeros(1 << 20) for _ in range(8)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Of ten steps that allocate 32 MiB."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True)
    if "no mallopt" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_tensors_that_come_and_go_cause_no_faults():
    """Pages have 4 KiB at least on most machines; with huge ones there would be fewer."""
    assert faults("keep") < 100 < faults("leave")


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}],
)
def test_settings_of_the_user_are_left_alone(environment):
    assert not keep_freed_memory(environment)
