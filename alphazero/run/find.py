"""Which checkpoint or weights file `--resume` and `--weights` mean, without torch, for launchers too."""

from __future__ import annotations

import os
import re
from pathlib import Path

from alphazero.base.errors import CheckpointError, ConfigError, WeightsError
from alphazero.base.files import given_path
from alphazero.base.log import Say
from alphazero.base.text import quoted, shortened
from alphazero.run.checkpoint_files import (
    BEST_METRICS,
    LATEST,
    MANIFEST,
    PREFIX,
    best_of,
    checkpoints_in,
    find_best,
    find_newest,
    verify,
)

BEST = "best-"
STEP = re.compile(rf"(?:{PREFIX})?(\d+)")
# Between a run and one of its checkpoints: runs/x@best-policy_top1, runs/x@12000.
AT = "@"
CHECKPOINTS = "checkpoints"
# The network of commands that are given none, and where its run is looked for.
WEIGHTS_VARIABLE = "ALPHAZERO_WEIGHTS"
RUNS = Path("runs")
RESUME_SPELLINGS = (
    f"{LATEST}, {BEST}METRIC ({', '.join(BEST_METRICS)}), a step (40 or {PREFIX}00000040), or the path of a "
    "checkpoint or of a run"
)
WEIGHTS_SPELLINGS = (
    "a weights file (.pt, .safetensors, lc0's .pb.gz), a run (runs/x, runs/x@best-policy_top1, runs/x@12000) "
    "or a checkpoint"
)

NETWORK = "network"  # what messages call the argument of most commands


def check_spelling(resume: str) -> None:
    """Raise ConfigError for a word that names no checkpoint on any host."""
    is_unknown = resume.startswith(BEST) and resume.removeprefix(BEST) not in BEST_METRICS
    if "/" in resume or Path(resume).exists() or (_is_word(resume) and not is_unknown):
        return
    raise ConfigError(f"--resume {resume}: names no checkpoint; expected {RESUME_SPELLINGS}")


def find_resumed(directory: Path, resume: str, say: Say, *, hash_files: bool = True) -> Path | None:
    """The complete checkpoint that `resume` names; None if it is the newest and there is none.

    directory: the run's own checkpoints. say: receives a line about each one passed over for an older one.
    Raises CheckpointError for a name of nothing, and for a damaged checkpoint named by itself.
    """
    asked, path = f"--resume {resume}", Path(resume)
    if _is_word(resume) and (resume in ("", LATEST, *BEST_METRICS) or not path.exists()):
        return _named(directory, resume, asked, say, hash_files)
    if is_checkpoint(path):
        verify(path, hash_files=hash_files)
        return path
    newest = find_newest(_checkpoints_of(path), say) if path.is_dir() else None
    if newest is None:
        raise CheckpointError(
            f"{asked}: no complete checkpoint, and {MANIFEST} cannot be read; expected {RESUME_SPELLINGS}"
        )
    return newest


def default_weights() -> str:
    """The network of $ALPHAZERO_WEIGHTS, else the only run of runs/. Raises WeightsError."""
    if named := os.environ.get(WEIGHTS_VARIABLE):
        return named
    return str(_only_run(RUNS, "no network was named", f"W, ${WEIGHTS_VARIABLE} or one run"))


def find_weights(name: str, flag: str = NETWORK) -> Path:
    """The weights file or the checkpoint (a directory with a manifest) that `name` means.

    Raises WeightsError and CheckpointError where there is none.
    """
    path, asked = given_path(name, flag), f"{flag} {name}"
    run, at, which = name.rpartition(AT)
    if at and not path.exists():
        only = Path(run) if run else _only_run(RUNS, asked, f"RUN{AT}{which} or one run")
        return _of_run(only, which, asked)
    if is_checkpoint(path):
        return path
    if path.is_dir():
        has_runs = not checkpoints_in(_checkpoints_of(path)) and _runs_in(path)
        return _of_run(_only_run(path, asked, "one of them") if has_runs else path, "", asked)
    if not path.exists():
        raise WeightsError(f"{asked}: no such file or directory; expected {WEIGHTS_SPELLINGS}")
    # A file of a checkpoint has no header: it means the checkpoint.
    return path.parent if is_checkpoint(path.parent) and path.is_file() else path


def is_checkpoint(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def _runs_in(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob(f"*/{CHECKPOINTS}"))


def _only_run(directory: Path, asked: str, expected: str) -> Path:
    runs = _runs_in(directory)
    if len(runs) != 1:
        names = ", ".join(map(str, runs)) or "no run"
        raise WeightsError(shortened(f"{asked}: {directory}/ holds {names}; expected {expected}"))
    return runs[0]


def _of_run(run: Path, which: str, asked: str) -> Path:
    """The newest checkpoint of a run, or the checkpoint that `which` names."""
    directory = _checkpoints_of(run)
    if not directory.is_dir():
        raise WeightsError(f"{asked}: no such file or directory; expected {WEIGHTS_SPELLINGS}")
    if not _is_word(which) or which == BEST.rstrip("-"):
        marked = [f"{BEST}{metric}" for metric in best_of(directory)]
        steps = [str(int(path.name.removeprefix(PREFIX))) for path in checkpoints_in(directory)]
        choices = ", ".join([LATEST, *marked, *steps])
        raise WeightsError(f"{asked}: {quoted(which)} names no checkpoint; expected one of {choices}")
    passed_over: list[str] = []
    checkpoint = _named(directory, which, asked, passed_over.append, hash_files=False)
    if checkpoint is None:
        faults = "; ".join(passed_over) or "there is none yet"
        raise CheckpointError(f"{asked}: no complete checkpoint ({faults}); expected {WEIGHTS_SPELLINGS}")
    return checkpoint


def _is_word(word: str) -> bool:
    """True for what names a checkpoint of any run: the newest, the best in a metric, a step."""
    return word in ("", LATEST, *BEST_METRICS) or word.startswith(BEST) or bool(STEP.fullmatch(word))


def _named(directory: Path, word: str, asked: str, say: Say, hash_files: bool) -> Path | None:
    """The complete checkpoint that a word names; None if it is the newest and there is none."""
    if word in ("", LATEST):
        return find_newest(directory, say, hash_files=hash_files)
    step = STEP.fullmatch(word)
    if step is None:
        return find_best(directory, word.removeprefix(BEST), hash_files=hash_files)
    path = directory / f"{PREFIX}{int(step[1]):08d}"
    if not path.is_dir():
        names = ", ".join(other.name for other in checkpoints_in(directory))
        raise CheckpointError(f"{asked}: {directory} has no {path.name}; there is {names or 'none'}")
    verify(path, hash_files=hash_files)
    return path


def _checkpoints_of(run: Path) -> Path:
    """The checkpoints of a run, given by its directory or by theirs."""
    return run / CHECKPOINTS if (run / CHECKPOINTS).is_dir() else run
