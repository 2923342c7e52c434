"""At ZeRO 0 gradients are averaged as communication_data_type says."""

import json
import subprocess
import sys

import pytest
import torch

from tests.support.jobs import reducing
from tests.support.jobs.jobs import environment


@pytest.fixture(scope="module")
def means():
    argv = [sys.executable, reducing.__file__]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=240, check=True)
    return {name: torch.tensor(values) for name, values in json.loads(done.stdout).items()}


def test_gradients_become_their_mean_in_the_precision_that_travels(means):
    first, second = map(reducing.gradient_of, range(reducing.WORLD_SIZE))
    exact = (first + second) / 2
    assert torch.equal(means["plain"], exact)
    rounded = (first.bfloat16() + second.bfloat16()).float() / 2
    assert torch.equal(means["bf16"], rounded) and not torch.equal(rounded, exact)
