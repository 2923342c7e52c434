"""The one directory of a run: settings, environment, log, events, checkpoints, newest weights."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import BusyError, ConfigError
from alphazero.base.files import complete_lines, remove_unfinished, write_json
from alphazero.base.text import counted
from alphazero.machine.environment import environment, git, version_of
from alphazero.machine.lock import DirectoryLock, Say, holder_of
from alphazero.settings.load import Config, to_table
from alphazero.settings.sections import RunConfig

# Set for the ranks of a restart: what is left of the start before may still hold the lock for a moment.
RESTART_VARIABLE = "ALPHAZERO_RESTART"
CLAIM_ATTEMPTS = 10
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
    def metrics(self) -> Path:
        """One JSON object a line: every step's losses, every validation."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        """The settings after preset, file and flags."""
        return self.path / "config.json"


def choose_run_directory(
    config: RunConfig, preset: str, *, fresh_start: bool, reserve: bool = False
) -> RunDirectory:
    """Where this run lives: an existing name is continued, a fresh start goes beside it (NAME-2, ...).

    preset: names a run that has no name of its own. reserve: make the directory of a fresh start, so that no
    other start takes it too. Nothing else is made, and nothing is removed.
    """
    name = config.run_name or preset or "run"
    if "/" in name or name in (".", ".."):
        raise ConfigError(f"--run-name {name!r}: expected a name without '/'")
    base = Path(config.runs_dir)
    path = base / name
    if fresh_start:
        number = 1
        while path.exists() or (reserve and not _reserved(path)):
            number += 1
            path = base / f"{name}-{number}"
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: is a file; expected a directory for the run")
    return RunDirectory(path)


def _reserved(path: Path) -> bool:
    """Make the directory; False where another start has been faster."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    return True


@dataclass(frozen=True)
class Claim:
    """The right of one process to write to a run, until it ends. made: directories made for it."""

    run: RunDirectory
    lock: DirectoryLock
    made: tuple[Path, ...]

    def end(self) -> None:
        """Let go; of a start that came to nothing, no directory is left."""
        if self.run.config.exists():
            self.lock.release()
            return
        self.lock.withdraw()
        with contextlib.suppress(OSError):  # not empty
            for path in self.made:
                path.rmdir()


def claim(run: RunDirectory, say: Say, wait_s: float = 0.0) -> Claim:
    """Become the one writer of `run`, waiting `wait_s` at most, and remove what killed writers left there.

    Raises BusyError naming the process that writes there now.
    """
    if run.checkpoints.is_symlink():
        raise ConfigError(f"{run.checkpoints}: is a link; expected a directory, or a --runs-dir elsewhere")
    made = tuple(path for path in (run.path, *run.path.parents) if not path.exists())
    for attempt in range(CLAIM_ATTEMPTS):
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            lock = DirectoryLock.acquire(run.path, "training", say, wait_s)
            break
        except FileNotFoundError:  # a start that came to nothing took its empty directory away
            if attempt == CLAIM_ATTEMPTS - 1:
                raise
        except OSError as error:
            raise ConfigError(f"{run.path}: cannot be written: {error.strerror}") from error
    for directory in (run.path, run.checkpoints):
        remove_unfinished(directory)
    return Claim(run, lock, made)


def require_free(run: RunDirectory) -> None:
    """Raise BusyError where a process is known to write to `run` now. A first look only: `claim` decides."""
    if holder := holder_of(run.path):
        raise BusyError(
            f"{run.path}: in use ({holder}); expected one writer: wait for it to end, or use another "
            "--run-name"
        )


def create(
    run: RunDirectory,
    config: Config,
    argv: list[str],
    init_weights: Mapping[str, object] | None = None,
    step: int = 0,
) -> None:
    """Make the directory and write down what was asked for, and of what (rank 0 only).

    init_weights: where the first weights came from, where they were given. step: where this start goes on.
    """
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(run.config, to_table(config))
        started = time.strftime("%Y%m%d-%H%M%S")
        told = (
            describe_environment(argv)
            | {"step": step}
            | ({"init_weights": init_weights} if init_weights else {})
        )
        write_json(run.path / f"started-{started}.json", told)
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
        "packages": {name: version_of(name) for name in REPORTED_PACKAGES},
        "commit": git("rev-parse", "HEAD"),
        "diff": git("diff", "HEAD"),
        "environment": environment(),
    }


def read_metrics(run: RunDirectory, kind: str) -> list[dict[str, float]]:
    """All lines of one kind ('step', 'validation') of metrics.jsonl, the newest line for each step.

    Damaged lines are passed over, which stderr is told. Raises ConfigError where the file cannot be read.
    """
    by_step: dict[int, dict[str, float]] = {}

    def take(line: Mapping[str, Any]) -> None:
        if line["kind"] == kind:
            if any(isinstance(value, str) for name, value in line.items() if name != "kind"):
                raise ValueError("a figure that is no number")
            by_step[int(line["step"])] = dict(line)

    _read_lines(run, take)
    return [by_step[step] for step in sorted(by_step)]


def newest_figures(run: RunDirectory, kind: str, step: int) -> dict[str, float] | None:
    """The newest line of one kind up to `step`, None where there is none; damaged lines are passed over."""
    mark = f'"kind": "{kind}"'
    try:
        lines = complete_lines(run.metrics)
    except OSError as error:
        raise ConfigError(f"{run.metrics}: cannot read: {error.strerror}") from error
    for text in reversed(lines):
        try:
            if mark in text and (line := json.loads(text))["kind"] == kind and int(line["step"]) <= step:
                return {name: value for name, value in line.items() if isinstance(value, (int, float))}
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
    return None


def read_events(run: RunDirectory, kind: str) -> list[dict[str, str | float]]:
    """All events of one kind ('alarm') of metrics.jsonl, in the order of their writing.

    Damaged lines are passed over, which stderr is told. Raises ConfigError where the file cannot be read.
    """
    events: list[dict[str, str | float]] = []

    def take(line: Mapping[str, Any]) -> None:
        if line["kind"] == kind:
            events.append({**line, "step": int(line["step"])})

    _read_lines(run, take)
    return events


def _read_lines(run: RunDirectory, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Hand over every line; `take` raises for one that is damaged in a way of its own."""
    try:
        lines = complete_lines(run.metrics)
    except OSError as error:
        raise ConfigError(f"{run.metrics}: cannot read: {error.strerror}") from error
    damaged = []
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            if any(not isinstance(value, (int, float, str)) for value in line.values()):
                raise ValueError("neither number nor text")
            take(line)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            damaged.append(number)
    if damaged:
        print(
            f"{run.metrics}:{damaged[0]}: no JSON of a step;"
            f" passed over {counted(len(damaged), 'damaged line')}",
            file=sys.stderr,
        )
