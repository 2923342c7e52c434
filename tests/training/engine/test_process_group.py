"""How a rank joins its job: what DeepSpeed does by itself on the way, and what it is kept from."""

import subprocess
import sys

import pytest

from tests.support.jobs.jobs import environment

# A rank whose device only calls itself a GPU: this machine has none.
PROGRAM = """
import os, sys
import deepspeed, deepspeed.ops, torch
from alphazero.training.engine.engine import end_process_group, start_process_group
from alphazero.launch.node.store import lone_process_environment
from alphazero.training.ranks.runtime import Runtime
os.environ.update(lone_process_environment())
torch.cuda.set_device = lambda device: None
deepspeed.init_distributed = lambda **options: torch.distributed.init_process_group("gloo")
start_process_group(Runtime(0, 0, 1, 1, torch.device(sys.argv[1], 0), "gloo", "here"))
print("probed" if "__compatible_ops__" in vars(deepspeed.ops) else "asked nothing")
end_process_group()
"""


@pytest.mark.parametrize(
    ("device", "expected"), [pytest.param("cpu", "probed", marks=pytest.mark.slow), ("cuda", "asked nothing")]
)
def test_compilers_are_asked_what_they_can_on_cpu_ranks_alone(device, expected):
    command = [sys.executable, "-c", PROGRAM, device]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == expected
