"""A first look at damaged files in every run of the tests; `make fuzz` looks for as long as one likes."""

import subprocess

import pytest

from tests.fuzz.__main__ import file_fuzz_command
from tests.fuzz.corpus import seeds
from tests.support.paths import REPOSITORY

# Of every kind; a seed that has shown a fault stays here.
SEEDS = (1,)
INPUTS = 1


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_files_are_read_or_refused_in_one_line(seed: int, tmp_path):
    limits = (
        "--inputs",
        str(INPUTS),
        "--seconds",
        "60",
        "--seed",
        str(seed),
        "--keep",
        str(tmp_path / "found"),
    )
    argv, environment = file_fuzz_command(*limits)
    done = subprocess.run(argv, env=environment, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_harness_has_seeds():
    for harness in (REPOSITORY / "csrc" / "fuzz").glob("*.cpp"):
        assert len(list(seeds(harness.stem))) >= 3, harness.stem
