"""`alphazero launch` for some seconds, as a user would start it: its metrics.jsonl has the speed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from alphazero.base.errors import TrainingError
from alphazero.base.files import complete_lines, read_text
from alphazero.base.text import last_line
from alphazero.machine.die_with_parent import guarded
from alphazero.machine.environment import CHECKOUT
from alphazero.run.directory import RunDirectory

GIB = 1 << 30
RUN_NAME = "short"
TRAINING = ("--run-name", RUN_NAME, "--steps", "1000000", "--validation-interval", "0", "--no-tensorboard")

LEAST_INTERVALS = 3  # the first one, in which kernels are chosen, is not counted
# Start of the processes, and of a first step on a slow machine.
START_LIMIT_S, END_LIMIT_S = 300.0, 60.0


@dataclass(frozen=True)
class ShortTraining:
    """A run, and what it measured after its first log interval: figures of the kinds `speed` and `gpu`.

    memory_bytes: of a rank, on its GPU where it has one. start_s: from the command to its end.
    """

    run: RunDirectory
    speeds: Sequence[Mapping[str, float]]
    gpus: Sequence[Mapping[str, float]]
    memory_bytes: int
    start_s: float

    @property
    def samples_per_s(self) -> float:
        """Median over the log intervals, of all ranks."""
        return statistics.median(line["samples_per_s"] for line in self.speeds)

    @property
    def ranks(self) -> int:
        """As many as the launcher chose."""
        return round(self.speeds[0]["samples_per_s"] / self.speeds[0]["samples_per_s_per_rank"])

    def gpu_figures(self, name: str) -> list[float]:
        """A figure of all GPUs at all log intervals, by the end of its name."""
        return _figures(self.gpus, name)


def train_for(flags: Sequence[str], seconds: float, directory: Path) -> ShortTraining:
    """Train for at least `seconds` after the first log interval. Raises TrainingError where that fails.

    flags: of `alphazero launch`. directory: of the run.
    """
    run, output = RunDirectory(directory / RUN_NAME), directory / "output"
    arguments = ("launch", "--runs-dir", str(directory), *TRAINING, *flags)
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    begun = time.monotonic()
    with output.open("wb") as stream:
        launcher = subprocess.Popen(
            guarded((sys.executable, "-m", "alphazero", *arguments)),
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(launcher, output, START_LIMIT_S, lambda: bool(_metrics(run, "speed")))
        start_s = time.monotonic() - begun
        end = begun + start_s + seconds
        _wait(
            launcher,
            output,
            START_LIMIT_S + seconds,
            lambda: time.monotonic() > end and len(_metrics(run, "speed")) >= LEAST_INTERVALS,
        )
        first, *speeds = _metrics(run, "speed")
        size_bytes = _largest_process(launcher.pid)
        launcher.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):  # killed below
            launcher.wait(END_LIMIT_S)
    finally:
        launcher.kill()
        launcher.wait()
    gpus = _metrics(run, "gpu")
    if on_gpus := _figures(gpus, "memory_used_gib"):
        size_bytes = int(max(on_gpus) * GIB)
    measured = [line for line in gpus if line["step"] > first["step"]]
    return ShortTraining(run, speeds, measured, size_bytes, start_s)


def _figures(lines: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [value for line in lines for key, value in line.items() if key.endswith(name)]


def _metrics(run: RunDirectory, kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, complete_lines(run.metrics)) if line["kind"] == kind]


def _largest_process(launcher: int) -> int:
    """Resident bytes of the largest process below the launcher: a rank."""
    sizes = []
    for process in psutil.Process(launcher).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            sizes.append(process.memory_info().rss)
    return max(sizes, default=0)


def _wait(
    launcher: subprocess.Popen[bytes], output: Path, limit_s: float, is_over: Callable[[], bool]
) -> None:
    """Until `is_over`. Raises TrainingError where the launcher fails, and after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not is_over():
        if launcher.poll():
            last = last_line(read_text(output)) or "no output"
            raise TrainingError(f"exit status {launcher.returncode}: {last}")
        if time.monotonic() > deadline:
            raise TrainingError(f"not done after {limit_s:.0f} s")
        time.sleep(0.1)
