"""Freed memory stays with the process, by glibc's own account: kernels count page faults differently."""

import subprocess
import sys

import pytest

from alphazero.machine.memory import keep_freed_memory

GIVEN_BACK = """
import ctypes, sys
import torch
from alphazero.machine.memory import keep_freed_memory

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()

class Account(ctypes.Structure):  # struct mallinfo2 of malloc.h
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]

def held():  # bytes that glibc has of the kernel
    account = mallinfo2()
    return account.arena + account.hblkhd

mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
kept = keep_freed_memory({}) if sys.argv[1] == "keep" else None
if mallinfo2 is None or kept is False:
    sys.exit("this C library has no mallopt or no mallinfo2")
mallinfo2.restype = Account
tensor = torch.zeros(6 << 20)
most = held()
del tensor
print(most - held())
"""


def given_back(how: str) -> int:
    """Bytes that go back to the kernel as a tensor of 24 MiB is freed."""
    done = subprocess.run([sys.executable, "-c", GIVEN_BACK, how], capture_output=True, text=True)
    if "this C library" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_a_freed_tensor_stays_with_the_process():
    assert given_back("leave") > 16 << 20
    assert given_back("keep") == 0


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}],
)
def test_settings_of_the_user_are_left_alone(environment):
    assert not keep_freed_memory(environment)
