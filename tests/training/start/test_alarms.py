"""Every alarm provoked in a real run by what it warns of, and none of them in ten healthy runs.

Idle GPUs are provoked in tests/training/loop/test_causes.py, health in tests/machine/test_watcher.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from alphazero.base.files import complete_lines
from tests.support.jobs.zygote import Job
from tests.support.paths import SUPPORT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = SUPPORT / "jobs" / "disturbed.py"
TINY = (
    *("--config", "chess_cpu", "--blocks", "2", "--filters", "16", "--se-ratio", "4", "--device", "cpu"),
    *("--batch-size", "128", "--micro-batch-size", "32", "--no-tensorboard", "--run-name", "job"),
    *("--checkpoint-interval", "1000000", "--validation-interval", "0", "--health-interval", "0"),
)
TINY_GAMES = (
    *("--config", "connect4", "--blocks", "1", "--filters", "8", "--run-name", "job"),
    *("--steps-per-generation", "5", "--reuse", "1", "--lanes", "16", "--simulations-per-round", "40"),
    *("--simulations", "8", "--evaluation-batch", "8", "--batch-size", "32", "--micro-batch-size", "16"),
    *("--precision", "fp32", "--window-minimum", "100", "--validation-interval", "0", "--no-tensorboard"),
    *("--checkpoint-interval", "1000000", "--health-interval", "0"),
)
ENDLESS = ("--steps", "1000000", "--log-interval", "5")
LIMIT_S = 240.0


def alarms(directory: Path) -> list[dict[str, str]]:
    """The events of the run in `directory`."""
    metrics = directory / "runs" / "job" / "metrics.jsonl"
    lines = map(json.loads, complete_lines(metrics)) if metrics.exists() else []
    return [line for line in lines if line["kind"] == "alarm"]


def first_alarm(job: Job, directory: Path, cause: str) -> dict[str, str]:
    """Waits until the run tells one of this cause, and ends it."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := [one for one in alarms(directory) if one["cause"] == cause]):
        assert time.monotonic() < deadline, job.output()[-3000:]
        assert job.is_running(), job.output()[-3000:]
        time.sleep(0.2)
    job.send(signal.SIGTERM)
    job.wait(60)
    (alarm, *_) = found
    assert f"alarm {cause}: {alarm['text']}; what to do: {alarm['advice']}" in job.output()
    log = (directory / "runs" / "job" / "log.txt").read_text()
    assert f"alarm {cause}: " in log
    return alarm


def steps_made(directory: Path) -> int:
    """So far."""
    metrics = directory / "runs" / "job" / "metrics.jsonl"
    lines = map(json.loads, complete_lines(metrics)) if metrics.exists() else []
    return max((line["step"] for line in lines if line["kind"] == "speed"), default=0)


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch):
    """Alarms need seconds, not minutes."""
    monkeypatch.setenv("SHORTEST_INTERVAL_S", "1")


@pytest.fixture
def start(zygote, tmp_path, random_store, monkeypatch):
    """Starts a supervised job of so many ranks, with further variables."""

    def run(ranks: int, *flags: str, **variables: str) -> Job:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return zygote.start(tmp_path, ranks, [*TINY, "--data", str(random_store), *ENDLESS, *flags], SCRIPT)

    return run


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Other programs that use every core."""
    with ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)):
            for _ in range(count):
                program = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
                # A session of its own: where the kernel shares time by session, each is one more.
                command = [sys.executable, "-c", program]
                process = stack.enter_context(subprocess.Popen(command, start_new_session=True))
                stack.callback(process.kill)
        yield


def seconds_of_training(directory: Path, seconds: float) -> None:
    """Until the run has made its first figures, and so long again."""
    wait_for(lambda: steps_made(directory) > 0)
    time.sleep(seconds)


def test_load_on_the_host_is_told_as_a_throughput_below_the_median(start, tmp_path):
    job = start(1)
    seconds_of_training(tmp_path, 12.0)
    with busy_processes(4):
        alarm = first_alarm(job, tmp_path, "throughput")
    assert "median" in alarm["text"]
    assert "in a row" in alarm["text"]


def test_a_rank_that_is_stopped_half_of_the_time_is_named_with_its_host(start, tmp_path):
    job = start(2)
    seconds_of_training(tmp_path, 1.0)
    deadline = time.monotonic() + LIMIT_S
    while not [one for one in alarms(tmp_path) if one["cause"] == "slow-rank"]:
        assert time.monotonic() < deadline, job.output()[-3000:]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            job.send(number, [1])
            time.sleep(0.05 if number == signal.SIGSTOP else 0.02)
    alarm = first_alarm(job, tmp_path, "slow-rank")
    assert alarm["text"].startswith(f"rank 1 on {os.uname().nodename} takes ")


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 64 MiB at tmp_path/runs."""
    runs = tmp_path / "runs"
    runs.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(runs)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.decode().strip()}")
    yield runs
    subprocess.run(["umount", "--lazy", str(runs)], check=True)


def test_a_small_disk_is_told(start, tmp_path, small_disk):
    alarm = first_alarm(start(1), tmp_path, "disk")
    assert "GiB left" in alarm["text"]


def test_little_memory_is_told(start, tmp_path):
    alarm = first_alarm(start(1, MEMORY_LEFT="0.05"), tmp_path, "memory")
    assert "below 10%" in alarm["text"]


def test_a_muted_alarm_is_not_told(start, tmp_path):
    job = start(1, "--mute", "memory", MEMORY_LEFT="0.05")
    seconds_of_training(tmp_path, 8.0)
    assert alarms(tmp_path) == []
    job.send(signal.SIGTERM)
    job.wait(60)
    assert "alarm " not in job.output()


HEALTHY = {
    "one rank, with validation": (1, TINY, ("--validation-interval", "100")),
    "two ranks, with validation": (2, TINY, ("--validation-interval", "100")),
    "checkpoints all the time": (2, TINY, ("--checkpoint-interval", "25", "--keep-checkpoints", "2")),
    "ZeRO stage 1": (2, TINY, ("--zero-stage", "1")),
    "ZeRO stage 2": (2, TINY, ("--zero-stage", "2")),
    "the watch of the host": (1, TINY, ("--health-interval", "0.5")),
    "games of its own": (1, TINY_GAMES, ()),
    "games of two ranks": (2, TINY_GAMES, ()),
    "games with Gumbel's search": (2, TINY_GAMES, ("--algorithm", "gumbel")),
    "games with resignation": (1, TINY_GAMES, ("--resign-threshold", "0.98", "--resign-playthrough", "0.2")),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_silent(zygote, tmp_path, random_store, monkeypatch, kind):
    """Three seconds are three times as strict as a run is, and still more than a moment of the machine."""
    ranks, base, flags = HEALTHY[kind]
    monkeypatch.setenv("SHORTEST_INTERVAL_S", "3")
    given = ("--data", str(random_store)) if base is TINY else ("--generations", "100000")
    steps = ENDLESS if base is TINY else ("--log-interval", "5")
    job = zygote.start(tmp_path, ranks, [*base, *given, *steps, *flags], SCRIPT)
    seconds_of_training(tmp_path, 24.0)
    job.send(signal.SIGTERM)
    job.wait(60)
    assert alarms(tmp_path) == []
    assert "alarm " not in job.output()
    assert steps_made(tmp_path) > 50
