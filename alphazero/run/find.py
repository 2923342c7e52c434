"""What `--resume` may name, and which checkpoint that is. Needs no torch, so that a launcher checks first.

Which weights file or checkpoint a `--weights` means. Needs no torch, so that a launcher checks first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from alphazero.base.errors import CheckpointError, ConfigError, WeightsError
from alphazero.base.files import given_path
from alphazero.run.checkpoint_files import (
    BEST_METRICS,
    LATEST,
    MANIFEST,
    NAME,
    PREFIX,
    checkpoints_in,
    find_best,
    find_newest,
    step_of,
    verify,
)

BEST = "best-"
STEP = re.compile(rf"(?:{PREFIX})?(\d+)")
SPELLINGS = (
    f"{LATEST}, {BEST}METRIC ({', '.join(BEST_METRICS)}), a step (40 or {PREFIX}00000040), or the path of a "
    "checkpoint or of a run"
)

Say = Callable[[str], None]


def check_spelling(resume: str) -> None:
    """Raise ConfigError for a word that names no checkpoint on any host."""
    if "/" in resume or Path(resume).exists() or STEP.fullmatch(resume):
        return
    metric = resume.removeprefix(BEST)
    if resume != LATEST and metric not in BEST_METRICS:
        raise ConfigError(f"--resume {resume}: names no checkpoint; expected {SPELLINGS}")


def find_resumed(directory: Path, resume: str, say: Say, *, hash_files: bool = True) -> Path | None:
    """The complete checkpoint that `resume` names; None where the newest was asked for and there is none.

    directory: the run's own checkpoints. say: told of each one passed over for an older one. Raises
    CheckpointError for a name of nothing, and for a damaged checkpoint that was asked for.
    """
    if resume in ("", LATEST):
        return find_newest(directory, say, hash_files=hash_files)
    path = Path(resume)
    if resume in BEST_METRICS or (resume.startswith(BEST) and not path.exists()):
        return find_best(directory, resume.removeprefix(BEST), hash_files=hash_files)
    if (step := STEP.fullmatch(resume)) and not path.exists():
        return _whole(directory / f"{PREFIX}{int(step[1]):08d}", resume, hash_files)
    if path.name == LATEST and path.is_file():
        name = path.read_text(encoding="utf-8", errors="replace").strip()
        if not NAME.fullmatch(name):
            raise CheckpointError(f"--resume {resume}: holds {name[:80]!r}; expected a checkpoint's name")
        return _whole(path.parent / name, resume, hash_files)
    if path.name.startswith(BEST) and path.is_file():
        return find_best(path.parent, path.name.removeprefix(BEST), hash_files=hash_files)
    return _whole(path, resume, hash_files) if (path / MANIFEST).exists() else _newest_of(path, resume, say)


def _whole(path: Path, resume: str, hash_files: bool) -> Path:
    if not path.is_dir():
        names = [other.name for other in checkpoints_in(path.parent)]
        raise CheckpointError(
            f"--resume {resume}: {path.parent} has no {path.name}; there is {', '.join(names) or 'none'}"
        )
    verify(path, hash_files=hash_files)
    return path


def _newest_of(path: Path, resume: str, say: Say) -> Path:
    """The newest complete checkpoint of another run, given by its directory or that of its checkpoints."""
    directory = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    newest = find_newest(directory, say) if path.is_dir() else None
    if newest is None:
        raise CheckpointError(
            f"--resume {resume}: no complete checkpoint, and {MANIFEST} cannot be read; expected {SPELLINGS}"
        )
    return newest


# Between a run and which of its checkpoints is meant: runs/x@best-policy_top1, runs/x@12000.
AT = "@"
CHECKPOINTS = "checkpoints"
WEIGHTS_NAMES_SPELLINGS = (
    "a weights file (.pt, .safetensors, lc0's .pb.gz), a run (runs/x, runs/x@best-policy_top1, runs/x@12000) "
    "or a checkpoint"
)


def find_weights(name: str, flag: str = "--weights") -> Path:
    """The weights file or the checkpoint (a directory with a manifest) that `name` means.

    Raises WeightsError and CheckpointError where there is none.
    """
    path = given_path(name, flag)
    run, at, which = name.rpartition(AT)
    if at and not path.exists():
        return _of_run(Path(run), which, name, flag)
    if is_checkpoint(path):
        return path
    if path.is_dir():
        return _of_run(path, "", name, flag)
    if not path.exists():
        raise WeightsError(f"{flag} {name}: no such file or directory; expected {WEIGHTS_NAMES_SPELLINGS}")
    # A file of a checkpoint has no header of its own: it means the checkpoint.
    return path.parent if is_checkpoint(path.parent) and path.is_file() else path


def is_checkpoint(path: Path) -> bool:
    """True for the directory of a checkpoint."""
    return (path / MANIFEST).is_file()


def _of_run(run: Path, which: str, name: str, flag: str) -> Path:
    """The newest checkpoint of a run, or the one that `which` names."""
    directory = run / CHECKPOINTS if (run / CHECKPOINTS).is_dir() else run
    if not directory.is_dir():
        raise WeightsError(f"{flag} {name}: no such file or directory; expected {WEIGHTS_NAMES_SPELLINGS}")
    metric = which.removeprefix(BEST)
    if which in ("", LATEST):
        return _newest(directory, f"{flag} {name}")
    if which.startswith(BEST) or metric in BEST_METRICS:
        return find_best(directory, metric, hash_files=False)
    if not (step := STEP.fullmatch(which)):
        raise WeightsError(
            f"{flag} {name}: {which!r} names no checkpoint; expected {WEIGHTS_NAMES_SPELLINGS}"
        )
    found = directory / f"{PREFIX}{int(step[1]):08d}"
    if not found.is_dir():
        names = [str(step_of(path)) for path in checkpoints_in(directory)]
        raise CheckpointError(
            f"{flag} {name}: no such checkpoint; there are steps {', '.join(names) or 'none'}"
        )
    return found


def _newest(directory: Path, name: str) -> Path:
    passed_over: list[str] = []
    found = find_newest(directory, passed_over.append, hash_files=False)
    if found is None:
        told = "; ".join(passed_over) or "there is none yet"
        raise CheckpointError(f"{name}: no complete checkpoint ({told}); expected {WEIGHTS_NAMES_SPELLINGS}")
    return found
