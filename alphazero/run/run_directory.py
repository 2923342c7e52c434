"""The one directory of a run: settings, environment, log, events, checkpoints, newest weights."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from alphazero.config import Config, RunConfig, to_table
from alphazero.errors import ConfigError
from alphazero.files import complete_lines, remove_unfinished, write_json
from alphazero.text import counted

REPORTED_PACKAGES = ("alphazero", "torch", "deepspeed", "numpy", "pyarrow", "safetensors")


@dataclass(frozen=True)
class RunDirectory:
    """Paths within a run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """One directory a checkpoint, and the pointer `latest`."""
        return self.path / "checkpoints"

    @property
    def games(self) -> Path:
        """The store of the run's self-play games."""
        return self.path / "games"

    @property
    def heartbeats(self) -> Path:
        """One file a rank."""
        return self.path / "heartbeat"

    @property
    def log(self) -> Path:
        """What rank 0 told the console."""
        return self.path / "log.txt"

    @property
    def metrics(self) -> Path:
        """One JSON object a line: every step's losses, every validation."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard events."""
        return self.path / "tensorboard"

    @property
    def config(self) -> Path:
        """The settings after preset, file and flags."""
        return self.path / "config.json"


def choose_run_directory(config: RunConfig, preset: str, *, fresh_start: bool) -> RunDirectory:
    """Where this run lives: an existing name is continued, a fresh start goes beside it (NAME-2, ...).

    preset: names a run that has no name of its own.
    What killed writers left in a run that is continued is removed.
    """
    name = config.run_name or preset or "run"
    if "/" in name or name in (".", ".."):
        raise ConfigError(f"--run-name {name!r}: expected a name without '/'")
    base = Path(config.runs_dir)
    path = base / name
    if fresh_start:
        number = 2
        while path.exists():
            path = base / f"{name}-{number}"
            number += 1
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: is a file; expected a directory for the run")
    run = RunDirectory(path)
    for directory in (run.path, run.checkpoints):
        remove_unfinished(directory)
    return run


def create(run: RunDirectory, config: Config, argv: list[str]) -> None:
    """Make the directory and write down what was asked for, and of what (rank 0 only)."""
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(run.config, to_table(config))
        started = time.strftime("%Y%m%d-%H%M%S")
        write_json(run.path / f"started-{started}.json", describe_environment(argv))
    except OSError as error:
        raise ConfigError(f"{run.path}: cannot be written: {error.strerror}") from error


def describe_environment(argv: list[str]) -> dict[str, object]:
    """What a bug report needs: command, versions, machine, commit and local changes."""
    return {
        "argv": argv,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": platform.node(),
        "packages": {name: _version_of(name) for name in REPORTED_PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "diff": _git("diff", "HEAD"),
    }


def read_metrics(run: RunDirectory, kind: str) -> list[dict[str, float]]:
    """All lines of one kind ('step', 'validation') of metrics.jsonl, the newest word on each step.

    Damaged lines are passed over, which stderr is told. Raises ConfigError where the file cannot be read.
    """
    try:
        lines = complete_lines(run.metrics)
    except OSError as error:
        raise ConfigError(f"{run.metrics}: cannot read: {error.strerror}") from error
    by_step: dict[int, dict[str, float]] = {}
    damaged = []
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            if any(not isinstance(value, (int, float)) for name, value in line.items() if name != "kind"):
                raise ValueError("a figure that is no number")
            if line["kind"] == kind:
                by_step[int(line["step"])] = line
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            damaged.append(number)
    if damaged:
        print(
            f"{run.metrics}:{damaged[0]}: no JSON of a step;"
            f" passed over {counted(len(damaged), 'damaged line')}",
            file=sys.stderr,
        )
    return [by_step[step] for step in sorted(by_step)]


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).resolve().parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
