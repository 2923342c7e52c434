"""Two starts at one moment: with one name a run has one writer; with two names both train."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.jobs.jobs import TINY, environment, step_lines
from tests.support.paths import REPOSITORY

LAUNCH = str(REPOSITORY / "launch_distributed_training.sh")
# Long enough for the second start to come before the end of the first, and a run of the two names.
LONG, SHORT = 800, 12


def start(directory: Path, store: Path, name: str, output: Path, steps: int) -> subprocess.Popen:
    """A start as a user types it."""
    arguments = [*TINY, "--data", str(store), "--steps", str(steps)]
    arguments += ["--checkpoint-interval", str(steps // 3)]
    return subprocess.Popen(
        [LAUNCH, *arguments, "--gpus", "1", "--device", "cpu", "--run-name", name],
        cwd=directory,
        env={**environment(), "VIRTUAL_ENV": sys.prefix},
        stdout=output.open("w"),
        stderr=subprocess.STDOUT,
    )


def both(
    directory: Path, store: Path, names: tuple[str, str], steps: int, *, amid_training: bool = False
) -> list[tuple[int, str]]:
    """Status and output of two starts at one moment, or the second one when the first has begun to train."""
    outputs = [directory / f"said-{number}" for number in range(2)]
    first = start(directory, store, names[0], outputs[0], steps)
    metrics = directory / "runs" / names[0] / "metrics.jsonl"
    while amid_training and first.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.02)
    second = start(directory, store, names[1], outputs[1], steps)
    return [
        (process.wait(240), output.read_text())
        for process, output in zip((first, second), outputs, strict=True)
    ]


def assert_whole(directory: Path, name: str, num_steps: int) -> None:
    """Every step of the run once, in order, and its last checkpoint complete."""
    steps = [line["step"] for line in step_lines(directory, name)]
    assert steps == [*range(1, num_steps + 1)]
    lines = (directory / "runs" / name / "metrics.jsonl").read_text().splitlines()
    assert sum('"kind": "step"' in line for line in lines) == num_steps
    verify = [sys.executable, "-m", "alphazero", "checkpoint", "verify", f"runs/{name}"]
    done = subprocess.run(verify, cwd=directory, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("amid_training", [False, True])
def test_of_two_starts_with_one_name_one_trains_and_the_other_is_told_who_does(
    tmp_path, random_store, amid_training: bool
):
    ended = both(tmp_path, random_store, ("one", "one"), LONG, amid_training=amid_training)
    assert sorted(status for status, _ in ended) == [0, 2], ended
    refused = next(said for status, said in ended if status == 2)
    assert "Traceback" not in refused
    assert re.search(r"runs/one: in use \(training, process \d+ on \S+, since", refused), refused
    assert_whole(tmp_path, "one", LONG)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]


def test_two_starts_with_two_names_both_train(tmp_path, random_store):
    ended = both(tmp_path, random_store, ("one", "two"), SHORT)
    assert [status for status, _ in ended] == [0, 0], ended
    for name, (_, said) in zip(("one", "two"), ended, strict=True):
        assert "Traceback" not in said
        assert_whole(tmp_path, name, SHORT)
