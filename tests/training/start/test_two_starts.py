"""Starts at one moment: with one name a run has one writer; with two names both train."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from alphazero.cli.main import main
from tests.support.jobs.jobs import TINY, environment, one_core_in_turn, step_lines
from tests.support.paths import REPOSITORY

LAUNCH = str(REPOSITORY / "launch_distributed_training.sh")
# A run that ends when the test has seen enough of it, so that no start comes too late.
ENDLESS, SHORT = 1_000_000, 12
LIMIT_S = 240
REFUSAL = re.compile(r"runs/one: in use \(training, process \d+ on \S+, since")


class Start:
    """A start as a user types it."""

    def __init__(self, directory: Path, store: Path, run: str, steps: int, number: int) -> None:
        self.output = directory / f"said-{number}"
        self.process = subprocess.Popen(
            [
                *(LAUNCH, *TINY, "--data", str(store), "--steps", str(steps), "--checkpoint-interval", "4"),
                *("--gpus", "1", "--device", "cpu", "--run-name", run),
            ],
            cwd=directory,
            env={**environment(), "VIRTUAL_ENV": sys.prefix},
            stdout=self.output.open("w"),
            stderr=subprocess.STDOUT,
            preexec_fn=one_core_in_turn(number),
        )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> tuple[int, str]:
        """Exit status and what was said."""
        return self.process.wait(LIMIT_S), self.output.read_text()


@pytest.fixture
def start(tmp_path: Path, random_store: Path) -> Iterator[Callable[[str, int], Start]]:
    """Starts a run of a name with a number of steps, and ends what still runs after the test."""
    starts: list[Start] = []

    def begin(run: str, steps: int) -> Start:
        starts.append(Start(tmp_path, random_store, run, steps, len(starts)))
        return starts[-1]

    yield begin
    for one in starts:
        one.process.terminate()
    for one in starts:
        one.process.wait(LIMIT_S)


def wait_until(condition: Callable[[], bool], starts: list[Start]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, [one.output.read_text() for one in starts]
        time.sleep(0.05)


def num_steps(directory: Path) -> int:
    """Steps that the run `one` has noted so far."""
    return len(step_lines(directory, "one")) if (directory / "runs/one/metrics.jsonl").exists() else 0


def assert_refused(start: Start) -> None:
    """With the name of the process that trains, and no word more than that."""
    status, said = start.end()
    assert status == 2, said
    assert "Traceback" not in said
    assert REFUSAL.search(said), said


def assert_whole(directory: Path, name: str) -> int:
    """Every step of the run once, in order, and a complete checkpoint of the last one; their number."""
    steps = [line["step"] for line in step_lines(directory, name)]
    assert steps == [*range(1, len(steps) + 1)]
    lines = (directory / "runs" / name / "metrics.jsonl").read_text().splitlines()
    assert sum('"kind": "step"' in line for line in lines) == len(steps)
    assert (directory / "runs" / name / "checkpoints" / f"step-{len(steps):08d}").is_dir()
    assert main(["checkpoint", "verify", str(directory / "runs" / name)]) == 0
    return len(steps)


@pytest.mark.slow
def test_of_starts_with_one_name_one_trains_and_the_others_are_told_who_does(tmp_path, start):
    """Two at one moment, then one amid training, which saves a checkpoint every few steps meanwhile."""
    both = [start("one", ENDLESS), start("one", ENDLESS)]
    wait_until(lambda: any(one.has_ended for one in both), both)
    refused, trains = sorted(both, key=lambda one: not one.has_ended)
    assert_refused(refused)
    wait_until(lambda: num_steps(tmp_path) > 0 or trains.has_ended, both)
    assert_refused(start("one", ENDLESS))
    so_far = num_steps(tmp_path)
    wait_until(lambda: num_steps(tmp_path) > so_far or trains.has_ended, both)
    assert not trains.has_ended, trains.output.read_text()
    trains.process.terminate()
    status, said = trains.end()
    assert status == 128 + signal.SIGTERM, said
    assert "Traceback" not in said
    assert assert_whole(tmp_path, "one") > so_far
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]


@pytest.mark.slow
def test_two_starts_with_two_names_both_train(tmp_path, start):
    ended = [one.end() for one in [start("one", SHORT), start("two", SHORT)]]
    assert [status for status, _ in ended] == [0, 0], ended
    for name, (_, said) in zip(("one", "two"), ended, strict=True):
        assert "Traceback" not in said
        assert assert_whole(tmp_path, name) == SHORT
