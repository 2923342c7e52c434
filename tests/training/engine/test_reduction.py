"""At ZeRO 0 gradients are averaged as communication_data_type and the keys of scaling say."""

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


def test_every_way_gives_the_mean_in_the_precision_that_travels(means):
    first, second = map(reducing.gradient_of, range(reducing.WORLD_SIZE))
    exact = (first + second) / 2
    assert torch.equal(means["plain"], exact)
    assert torch.equal(means["prescaled"], first / 2 + second / 2)
    assert torch.equal(means["divided"], (first / 8 + second / 8) / (2 / 8))
    rounded = (first.bfloat16() + second.bfloat16()).float() / 2
    assert torch.equal(means["bf16"], rounded) and not torch.equal(rounded, exact)
    assert torch.equal(means["bf16 prescaled"], ((first / 2).bfloat16() + (second / 2).bfloat16()).float())
