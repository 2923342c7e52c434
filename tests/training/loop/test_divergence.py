"""A rank whose weights are no longer the others' is found at the next checksum, named, and the run stops."""

import re

import pytest

from tests.support.jobs.jobs import TINY
from tests.support.paths import SUPPORT

SCRIPT = SUPPORT / "jobs" / "disturbed.py"
TENSOR = "value.hidden.weight"
INTERVAL = 3
ARGUMENTS = (
    *TINY,
    *("--optimizer", "adamw", "--batch-size", "32", "--micro-batch-size", "8", "--steps", "9"),
    *("--checkpoint-interval", str(INTERVAL)),
)


@pytest.fixture
def diverged(zygote, tmp_path, random_store, monkeypatch):
    """A job in which one bit flips: its exit statuses and what it said."""

    def run(ranks: int, stage: int, odd: int, step: int) -> tuple[list[int], str]:
        monkeypatch.setenv("DISTURBED_RANK", str(odd))
        monkeypatch.setenv("DISTURBANCE", f"flip:{step}")
        arguments = [*ARGUMENTS, "--data", str(random_store), "--zero-stage", str(stage)]
        job = zygote.start(tmp_path, ranks, arguments, script=SCRIPT)
        return job.wait(), job.output()

    return run


def assert_named(output: str, ranks: list[int], step: int) -> None:
    """One line that names the check, the tensor and the ranks; and only checkpoints from before."""
    (line,) = re.findall(r"alphazero: error: .*", output)
    assert f"step {step}" in line
    assert TENSOR in line
    assert re.findall(r"\d+", re.search(r"\branks? ([\d, ]+)", line)[1]) == [str(rank) for rank in ranks]
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("odd", "stage"),
    [(0, 0), pytest.param(1, 1, marks=pytest.mark.slow), pytest.param(2, 0, marks=pytest.mark.slow)],
)
def test_one_flipped_bit_names_its_rank_and_tensor_and_ends_the_run(diverged, tmp_path, odd, stage):
    """The flip is in the step the second check follows; at ZeRO 0 it would last as well (below)."""
    statuses, output = diverged(3, stage, odd, 2 * INTERVAL)
    assert statuses == [3, 3, 3], output[-2000:]
    assert_named(output, [odd], 2 * INTERVAL)
    checkpoints = tmp_path / "runs" / "job" / "checkpoints"
    assert [path.name for path in checkpoints.glob("step-*")] == [f"step-{INTERVAL:08d}"]


@pytest.mark.slow
def test_a_bit_that_flipped_steps_before_a_check_is_found_at_it(diverged):
    statuses, output = diverged(3, 0, 1, INTERVAL + 1)
    assert statuses == [3, 3, 3], output[-2000:]
    # Further tensors differ by then; the first of them in the network's order is named.
    (line,) = re.findall(r"alphazero: error: .*", output)
    assert f"step {2 * INTERVAL}" in line
    assert re.search(r"\brank 1\b", line)


def test_of_two_ranks_that_differ_both_are_named(diverged):
    statuses, output = diverged(2, 0, 1, INTERVAL)
    assert statuses == [3, 3], output[-2000:]
    assert_named(output, [0, 1], INTERVAL)


def test_a_run_in_which_no_bit_flips_goes_to_its_end(diverged):
    """The script alone does nothing."""
    statuses, output = diverged(2, 0, 0, 1000)
    assert statuses == [0, 0], output[-2000:]
