"""Which weights file or checkpoint a `--weights` means. Needs no torch, so that a launcher checks first."""

from __future__ import annotations

from pathlib import Path

from alphazero.errors import CheckpointError, WeightsError
from alphazero.files import given_path
from alphazero.training.checkpoint.files import (
    BEST_METRICS,
    LATEST,
    MANIFEST,
    PREFIX,
    checkpoints_in,
    find_best,
    find_newest,
    step_of,
)
from alphazero.training.checkpoint.resume import BEST, STEP

# Between a run and which of its checkpoints is meant: runs/x@best-policy_top1, runs/x@12000.
AT = "@"
CHECKPOINTS = "checkpoints"
SPELLINGS = (
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
        raise WeightsError(f"{flag} {name}: no such file or directory; expected {SPELLINGS}")
    # A file of a checkpoint has no header of its own: it means the checkpoint.
    return path.parent if is_checkpoint(path.parent) and path.is_file() else path


def is_checkpoint(path: Path) -> bool:
    """True for the directory of a checkpoint."""
    return (path / MANIFEST).is_file()


def _of_run(run: Path, which: str, name: str, flag: str) -> Path:
    """The newest checkpoint of a run, or the one that `which` names."""
    directory = run / CHECKPOINTS if (run / CHECKPOINTS).is_dir() else run
    if not directory.is_dir():
        raise WeightsError(f"{flag} {name}: no such file or directory; expected {SPELLINGS}")
    metric = which.removeprefix(BEST)
    if which in ("", LATEST):
        return _newest(directory, f"{flag} {name}")
    if which.startswith(BEST) or metric in BEST_METRICS:
        return find_best(directory, metric, hash_files=False)
    if not (step := STEP.fullmatch(which)):
        raise WeightsError(f"{flag} {name}: {which!r} names no checkpoint; expected {SPELLINGS}")
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
        raise CheckpointError(f"{name}: no complete checkpoint ({told}); expected {SPELLINGS}")
    return found
