"""The program itself for some seconds, as a user would start it: for what reads a speed from its figures.

Training is `alphazero launch`, stopped by a signal; its metrics.jsonl has the speed. The energy is that
of RAPL (processors) and NVML (GPUs), where the machine reports it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from alphazero.base.errors import TrainingError
from alphazero.base.files import complete_lines, read_text
from alphazero.base.text import last_line
from alphazero.machine.die_with_parent import guarded
from alphazero.machine.environment import CHECKOUT, START
from alphazero.machine.machine import look_at_this_machine, visible_devices
from alphazero.machine.nvml import NvmlUnusable, open_nvml
from alphazero.run.directory import RunDirectory

GIB = 1 << 30
RUN_NAME = "short"
TRAINING = ("--run-name", RUN_NAME, "--steps", "1000000", "--validation-interval", "0", "--no-tensorboard")
POWER_CAPS = Path("/sys/class/powercap")
PACKAGES = "intel-rapl:?"  # whole processors; their parts (intel-rapl:0:0) are included

LEAST_INTERVALS = 3  # the first one, in which kernels are chosen, is not counted
# Start of the processes, and of a first step on a slow machine.
START_LIMIT_S, END_LIMIT_S = 300.0, 60.0


@dataclass(frozen=True)
class EnergyCounters:
    """Joules so far, by processor or GPU, at one moment."""

    at_s: float
    joules: Mapping[str, float]

    @classmethod
    def read(cls, root: Path = POWER_CAPS) -> EnergyCounters:
        """RAPL of the processors, which only root can read on most machines, and NVML of the GPUs."""
        joules = {}
        for package in sorted(root.glob(PACKAGES)):
            try:
                joules[f"processor {package.name[-1]}"] = int((package / "energy_uj").read_text()) / 1e6
            except (OSError, ValueError):
                continue
        return cls(time.monotonic(), joules | _energy_of_gpus())

    def watts_until(self, later: EnergyCounters) -> dict[str, float]:
        """Mean power by name; a counter that was reset in between is left out."""
        seconds = later.at_s - self.at_s
        changes = {name: later.joules.get(name, -1.0) - joules for name, joules in self.joules.items()}
        return {name: change / seconds for name, change in changes.items() if change >= 0 and seconds > 0}


def _energy_of_gpus() -> dict[str, float]:
    """Since the driver was loaded; GPUs before Volta have no counter."""
    try:
        with open_nvml() as nvml:
            return nvml.energy_joules()
    except NvmlUnusable:
        return {}


@dataclass(frozen=True)
class ShortCommand:
    """Arguments of `alphazero`, and variables beside those of this process."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShortTraining:
    """A run, and what it measured after its first log interval: figures of the kinds `speed` and `gpu`.

    memory_bytes: of a rank, on its GPU where it has one. watts: by processor or GPU.
    """

    run: RunDirectory
    speeds: Sequence[Mapping[str, float]]
    gpus: Sequence[Mapping[str, float]]
    memory_bytes: int
    watts: Mapping[str, float]

    @property
    def samples_per_s(self) -> float:
        """Median over the log intervals, of all ranks."""
        return statistics.median(line["samples_per_s"] for line in self.speeds)

    @property
    def ranks(self) -> int:
        """As many as the launcher chose."""
        return round(self.speeds[0]["samples_per_s"] / self.speeds[0]["samples_per_s_per_rank"])

    @property
    def precision(self) -> str:
        """As the run chose it."""
        settings = json.loads(self.run.config.read_text(encoding="utf-8"))
        return str(settings["training"]["precision"])

    def gpu_figures(self, name: str) -> list[float]:
        """A figure of all GPUs at all log intervals, by the end of its name."""
        return [value for line in self.gpus for key, value in line.items() if key.endswith(name)]


def train_for(flags: Sequence[str], seconds: float, directory: Path) -> ShortTraining:
    """Train for at least `seconds` after the first log interval. Raises TrainingError where that fails.

    flags: of `alphazero launch`. directory: of the run.
    """
    run = RunDirectory(directory / RUN_NAME)
    command = ShortCommand(["launch", "--runs-dir", str(directory), *TRAINING, *flags])
    with _processes([command], directory) as started:
        _wait(started, directory, START_LIMIT_S, lambda: bool(_metrics(run, "speed")))
        counters, end = EnergyCounters.read(), time.monotonic() + seconds
        _wait(
            started,
            directory,
            START_LIMIT_S + seconds,
            lambda: time.monotonic() > end and len(_metrics(run, "speed")) >= LEAST_INTERVALS,
        )
        watts = counters.watts_until(EnergyCounters.read())
        first, *speeds = _metrics(run, "speed")
        (launcher,) = started
        size_bytes = _largest_process(launcher.pid)
        launcher.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):  # killed with the block
            launcher.wait(END_LIMIT_S)
    trained = ShortTraining(run, speeds, _metrics(run, "gpu"), size_bytes, watts)
    if on_gpus := trained.gpu_figures("memory_used_gib"):
        trained = replace(trained, memory_bytes=int(max(on_gpus) * GIB))
    return replace(trained, gpus=[line for line in trained.gpus if line["step"] > first["step"]])


def last_lines(each: Sequence[ShortCommand], directory: Path) -> list[str]:
    """Commands side by side to their end; the last line that each wrote. Raises TrainingError."""
    with _processes(each, directory) as started:
        _wait(started, directory, START_LIMIT_S, lambda: all(process.poll() == 0 for process in started))
    return [_last_line(directory, number) for number in range(len(each))]


def visible_gpus(device: str) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES may name; empty without a GPU and for the device cpu."""
    devices = look_at_this_machine(device).devices
    return visible_devices(devices, os.environ.get("CUDA_VISIBLE_DEVICES")) if devices else ()


def _metrics(run: RunDirectory, kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, complete_lines(run.metrics)) if line["kind"] == kind]


def _largest_process(launcher: int) -> int:
    """Resident bytes of the largest process below the launcher: a rank."""
    sizes = []
    for process in psutil.Process(launcher).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            sizes.append(process.memory_info().rss)
    return max(sizes, default=0)


@contextlib.contextmanager
def _processes(each: Sequence[ShortCommand], directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Their output goes to directory/output-N; they end with the block."""
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    started = []
    try:
        for number, command in enumerate(each):
            with (directory / f"output-{number}").open("wb") as output:
                started.append(
                    subprocess.Popen(
                        guarded((sys.executable, START, *command.arguments)),
                        env={**os.environ, "PYTHONPATH": path, **command.variables},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def _wait(
    started: Sequence[subprocess.Popen[bytes]], directory: Path, limit_s: float, is_over: Callable[[], bool]
) -> None:
    """Until `is_over`. Raises TrainingError where a process fails, and after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not is_over():
        for number, process in enumerate(started):
            if process.poll():
                last = _last_line(directory, number)
                raise TrainingError(f"exit status {process.returncode}: {last or 'no output'}")
        if time.monotonic() > deadline:
            raise TrainingError(f"not done after {limit_s:.0f} s")
        time.sleep(0.1)


def _last_line(directory: Path, number: int) -> str:
    return last_line(read_text(directory / f"output-{number}"))
