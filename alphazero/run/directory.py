"""The one directory of a run: settings, environment, log, events, checkpoints, newest weights."""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alphazero.base.errors import BusyError, ConfigError
from alphazero.base.files import remove_unfinished, write_json
from alphazero.base.text import as_utf8, printable
from alphazero.machine.environment import CHECKOUT, environment, git, version_of
from alphazero.machine.lock import holder_of, only_writer

# Set for the ranks of a restart: what is left of the start before may still hold the lock for a moment.
RESTART_VARIABLE = "ALPHAZERO_RESTART"
REPORTED_PACKAGES = ("alphazero", "torch", "deepspeed", "numpy", "pyarrow", "safetensors")


@dataclass(frozen=True)
class RunDirectory:
    """Paths within a run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """One directory a checkpoint, and `best-elo`, which names the strongest of a rating."""
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
    runs_dir: str, name: str, *, fresh_start: bool, reserve: bool = False
) -> RunDirectory:
    """Where this run lives: an existing name is continued, a fresh start goes beside it (NAME-2, ...).

    reserve: make the directory of a fresh start, so that no
    other start takes it too. Nothing else is made, and nothing is removed.
    """
    if "/" in name or name in (".", ".."):
        raise ConfigError(f"--run-name {name!r}: expected a name without '/'")
    if as_utf8(name) != name:
        raise ConfigError(f"--run-name {printable(name)}: is not UTF-8; expected a name that is")
    base = Path(runs_dir)
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


@contextlib.contextmanager
def claimed(run: RunDirectory, say: Callable[[str], None], wait_s: float = 0.0) -> Iterator[None]:
    """Be the one writer of `run` within the block; what killed writers left there is removed.

    wait_s: how long to wait for another process. A start that came to nothing leaves no directory. Raises
    BusyError naming the process that writes there now.
    """
    if run.checkpoints.is_symlink():
        raise ConfigError(f"{run.checkpoints}: is a link; expected a directory, or a --runs-dir elsewhere")
    made = [path for path in (run.path, *run.path.parents) if not path.exists()]
    try:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(only_writer(run.path, "training", say, wait_s))
            except OSError as error:
                raise ConfigError(f"{run.path}: cannot be written: {error.strerror}") from error
            for directory in (run.path, run.checkpoints):
                remove_unfinished(directory)
            yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


def require_free(run: RunDirectory) -> None:
    """Raise BusyError where a process is known to write to `run` now. A first look: `claimed` decides."""
    if holder := holder_of(run.path):
        raise BusyError(
            f"{run.path}: in use ({holder}); expected one writer: wait for it to end, or use another "
            "--run-name"
        )


def create(
    run: RunDirectory,
    settings: Mapping[str, object],
    argv: list[str],
    init_weights: Mapping[str, object] | None = None,
    step: int = 0,
    git_diff: bool = True,
    command: Sequence[str] = (),
) -> None:
    """Make the directory and record the settings, the command and the environment (rank 0 only).

    settings: all of them, by section. init_weights: where given first weights came from. step: where this
    start continues. git_diff: whether local changes are recorded, not only the commit. command: what the
    user typed, where it is known; argv is that of this process.
    """
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(run.config, settings)
        started = time.strftime("%Y%m%d-%H%M%S")
        content = describe_environment(argv, git_diff) | {"step": step, "command": list(command)}
        if init_weights:
            content["init_weights"] = init_weights
        write_json(run.path / f"started-{started}.json", content)
    except OSError as error:
        raise ConfigError(f"{run.path}: cannot be written: {error.strerror}") from error


def describe_environment(
    argv: list[str], git_diff: bool = True, checkout: Path = CHECKOUT
) -> dict[str, object]:
    """What a bug report needs: command, versions, machine, commit and, with git_diff, local changes."""
    return {
        "argv": argv,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "host": platform.node(),
        "packages": {name: version_of(name) for name in REPORTED_PACKAGES},
        "commit": git("rev-parse", "HEAD", checkout=checkout),
        "diff": git("diff", "HEAD", checkout=checkout) if git_diff else "",
        "diff_of": "files that git tracks" if git_diff else "no files (--no-git-diff)",
        "environment": environment(),
    }
