"""The files of a checkpoint and the directory that holds many: names, manifest, which to find and keep.

Nothing here needs torch, so that `alphazero checkpoint` answers at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, cast

from alphazero.base.errors import CheckpointError
from alphazero.base.files import fsync_directory, open_regular, replacing, sha256_of, write_json
from alphazero.base.text import quoted, reason

MAGIC = "alphazero-checkpoint"
VERSION = 1
CONTENTS = WEIGHTS, EMA, CHAMPION, OPTIMIZER, LANES, STATE = (
    "weights.safetensors",
    "ema.safetensors",
    "champion.safetensors",
    "optimizer.safetensors",
    "lanes.arrow",
    "state.json",
)
MANIFEST = "manifest.json"
MAX_JSON_BYTES = 16 << 20
LATEST = "latest"
PREFIX = "step-"
SUPERSEDED = "superseded"
# What `--resume best-METRIC` may name, and whether more of it is better.
BEST_METRICS = {
    "policy_top1": True,
    "policy_loss": False,
    "value_mse": False,
    "composite": False,
    "move_error": False,
    "elo": True,  # of no validation: measure/rating.py
}
BEST_MAGIC = "alphazero-best"
# Names that this program gives; other entries of the directory are not ours.
NAME = re.compile(rf"{PREFIX}\d+")
SUPERSEDED_NAME = re.compile(rf"{SUPERSEDED}-\d+-{PREFIX}\d+")
REMAINS = re.compile(rf"\.{PREFIX}\d+(\.before|\.removed)?\.tmp")
UNFINISHED_FILE = re.compile(r"\.(.+)\.\d+\.tmp")  # see files.replacing


def checkpoints_in(directory: Path) -> list[Path]:
    """Checkpoint directories, oldest first; one may be damaged, or a link to another place."""
    return _named(directory, NAME)


def superseded_in(directory: Path) -> list[Path]:
    """Checkpoints that `set_aside_after` put away."""
    return _named(directory, SUPERSEDED_NAME)


def _named(directory: Path, name: re.Pattern[str]) -> list[Path]:
    return sorted(path for path in directory.glob("*") if name.fullmatch(path.name) and path.is_dir())


def require_ours(path: Path) -> None:
    """Raise CheckpointError unless it may be removed: a directory, no link, with a checkpoint's manifest."""
    if path.is_symlink() or not path.is_dir():
        raise CheckpointError(f"{path}: is no directory; expected a checkpoint, or nothing of that name")
    if (magic := read_json(path / MANIFEST).get("magic")) != MAGIC:
        raise CheckpointError(f"{path / MANIFEST}: magic {magic!r}: expected {MAGIC!r}, or nothing there")


def is_ours(path: Path) -> bool:
    """True for what may be removed (see require_ours)."""
    try:
        require_ours(path)
    except CheckpointError:
        return False
    return True


def set_aside_damaged(path: Path) -> bool:
    """Rename what has the files of a checkpoint and cannot be read as one; False for anything else."""
    if is_ours(path) or not _holds_own_files_only(path) or not (path / MANIFEST).exists():
        return False
    number = 1
    while os.path.lexists(other := path.with_name(f"unreadable-{number}-{path.name}")):
        number += 1
    path.rename(other)
    return True


def _are_remains(path: Path) -> bool:
    """True for what a killed save or removal of a checkpoint left: its own files and no others."""
    return bool(REMAINS.fullmatch(path.name)) and _holds_own_files_only(path)


def _holds_own_files_only(path: Path) -> bool:
    """True for a directory, no link, with files of a checkpoint's names and no others."""
    if path.is_symlink() or not path.is_dir():
        return False

    def is_own(file: Path) -> bool:
        unfinished = UNFINISHED_FILE.fullmatch(file.name)
        name = unfinished[1] if unfinished else file.name
        return name in (*CONTENTS, MANIFEST) and file.is_file() and not file.is_symlink()

    return all(is_own(file) for file in path.iterdir())


def traces_in(directory: Path) -> list[str]:
    """A line about each thing that shows that checkpoints were saved here; all are damaged where it is asked.

    None for a run that was killed before its first checkpoint: its directory of checkpoints exists, and is
    empty but for a save that was never finished.
    """
    lines = []
    for path in checkpoints_in(directory):
        try:
            verify(path)
        except CheckpointError as error:
            lines.append(str(error))
    names = [path.name for path in superseded_in(directory)]
    names += [path.name for path in sorted(directory.glob("best-*")) if path.is_file()]
    names += [LATEST] if (directory / LATEST).exists() else []
    if names and not lines:
        lines.append(f"{', '.join(names)} without the checkpoints that they belong to")
    return lines


def find_newest(directory: Path, say: Callable[[str], None], *, hash_files: bool = True) -> Path | None:
    """The newest complete checkpoint; `say` gets a line about each one passed over."""
    for path in reversed(checkpoints_in(directory)):
        try:
            verify(path, hash_files=hash_files)
        except CheckpointError as error:
            say(f"passed over: {error}")
        else:
            return path
    return None


def verify(path: Path, *, hash_files: bool = True) -> None:
    """Check magic, version, sizes and checksums; CheckpointError names the file and the fault.

    hash_files: the checksums of the large files too; that of the state, which every command reads, always.
    """
    for name, expected in read_manifest(path).items():
        verify_file(path / name, expected, hash_it=hash_files or name == STATE)


def verify_file(file: Path, expected: Mapping[str, Any], *, hash_it: bool = True) -> None:
    """Check one file against its entry in the manifest. Raises CheckpointError."""
    if not file.is_file():
        raise CheckpointError(f"{file}: missing; expected {expected['size_bytes']} bytes")
    if file.stat().st_size != expected["size_bytes"]:
        raise CheckpointError(f"{file}: {file.stat().st_size} bytes; expected {expected['size_bytes']}")
    if hash_it and (digest := sha256_of(file)) != expected["sha256"]:
        raise CheckpointError(f"{file}: sha256 {digest[:12]}...; expected {expected['sha256'][:12]}...")


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """size_bytes and sha256 of every file of a checkpoint."""
    manifest = read_json(path / MANIFEST)
    if manifest.get("magic") != MAGIC:
        raise CheckpointError(f"{path / MANIFEST}: magic {quoted(manifest.get('magic'))}: expected {MAGIC!r}")
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{path / MANIFEST}: version {quoted(manifest.get('version'))}: expected {VERSION}"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or not {WEIGHTS, OPTIMIZER, STATE} <= files.keys():
        raise CheckpointError(
            f"{path / MANIFEST}: files {quoted(files)}: expected {WEIGHTS}, {OPTIMIZER}, {STATE}"
        )
    for name, entry in files.items():
        is_entry = isinstance(entry, dict) and isinstance(entry.get("size_bytes"), int)
        if name not in CONTENTS or not is_entry or not isinstance(entry.get("sha256"), str):
            raise CheckpointError(
                f"{path / MANIFEST}: {quoted(name)}: {quoted(entry)}: expected size_bytes and sha256"
            )
    return files


def write_manifest(directory: Path, names: list[str]) -> None:
    """Describe the files `names` of `directory`."""
    files = {
        name: {"size_bytes": (directory / name).stat().st_size, "sha256": sha256_of(directory / name)}
        for name in names
    }
    write_json(directory / MANIFEST, {"magic": MAGIC, "version": VERSION, "files": files})


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; CheckpointError for anything else."""
    try:
        if (size_bytes := path.stat().st_size) > MAX_JSON_BYTES:
            raise CheckpointError(f"{path}: {size_bytes} bytes; expected at most {MAX_JSON_BYTES}")
        with open_regular(path) as file:
            value = json.loads(file.read())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: {reason(error)}; expected JSON") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """A number that a float holds; JSON also has true, and whole numbers of hundreds of digits."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def state_in_short(path: Path) -> tuple[str, int, dict[str, float]]:
    """Precision, number of ranks and figures of the checkpoint at `path`. Raises CheckpointError."""
    state = read_json(path / STATE)
    precision, ranks, figures = (
        state.get("precision", "?"),
        state.get("world_size", 0),
        state.get("figures", {}),
    )
    for name, value, fits, expected in (
        ("precision", precision, isinstance(precision, str) and len(precision) < 20, "the name of one"),
        ("world_size", ranks, is_number(ranks) and type(ranks) is int, "a whole number"),
        ("figures", figures, isinstance(figures, dict) and all(map(is_number, figures.values())), "numbers"),
    ):
        if not fits:
            raise CheckpointError(f"{path / STATE}: {name} {quoted(value)}: expected {expected}")
    return precision, cast(int, ranks), figures


def improved(directory: Path, figures: Mapping[str, float]) -> tuple[str, ...]:
    """The metrics in which `figures` beats every checkpoint marked best so far."""
    names = [name for name in BEST_METRICS if name in figures]
    return tuple(name for name in names if _is_better(figures[name], directory, name))


def _is_better(value: float, directory: Path, metric: str) -> bool:
    if (best := marked_best(directory, metric)) is None:
        return not math.isnan(value)
    return value > best[1] if BEST_METRICS[metric] else value < best[1]


def marked_best(directory: Path, metric: str) -> tuple[Path, float] | None:
    """The checkpoint marked best and its figure, None where there is none that stands."""
    try:
        path, value = _read_best(directory, metric)
        verify(path, hash_files=False)
    except CheckpointError:
        return None
    return path, value


def mark_best(directory: Path, path: Path, figures: Mapping[str, float]) -> tuple[str, ...]:
    """Point at `path` as the best in every metric in which its `figures` are; the metrics."""
    metrics = improved(directory, figures)
    for metric in metrics:
        point_at(directory, metric, path, figures[metric])
    return metrics


def point_at(directory: Path, metric: str, path: Path, value: float) -> None:
    """Mark the checkpoint `path` as the best in one metric, whatever was marked before."""
    write_json(directory / f"best-{metric}", {"magic": BEST_MAGIC, "checkpoint": path.name, "value": value})


def find_best(directory: Path, metric: str, *, hash_files: bool = True) -> Path:
    """The complete checkpoint marked best in `metric`; CheckpointError where there is none."""
    if metric not in BEST_METRICS:
        raise CheckpointError(f"best-{metric}: no such metric; expected one of {', '.join(BEST_METRICS)}")
    if not (directory / f"best-{metric}").exists():
        marked = [name for name in BEST_METRICS if (directory / f"best-{name}").exists()]
        raise CheckpointError(f"{directory}: no best-{metric}; there is {', '.join(marked) or 'none yet'}")
    path, _ = _read_best(directory, metric)
    verify(path, hash_files=hash_files)
    return path


def _read_best(directory: Path, metric: str) -> tuple[Path, float]:
    file = directory / f"best-{metric}"
    pointer = read_json(file)
    name, value = pointer.get("checkpoint"), pointer.get("value")
    is_name = isinstance(name, str) and re.fullmatch(rf"{PREFIX}[\w.-]{{1,100}}", name, re.ASCII) is not None
    if pointer.get("magic") != BEST_MAGIC or not is_name or not is_number(value) or math.isnan(value):
        raise CheckpointError(f"{file}: {quoted(pointer)}: expected {BEST_MAGIC!r} with checkpoint and value")
    return directory / str(name), float(value)


def pointers(directory: Path) -> dict[str, list[str]]:
    """Names of the metrics each checkpoint (by directory name) is marked best in."""
    by_name: dict[str, list[str]] = {}
    for metric in BEST_METRICS:
        try:
            path, _ = _read_best(directory, metric)
        except CheckpointError:
            continue
        by_name.setdefault(path.name, []).append(metric)
    return by_name


def prune(directory: Path, keep: int, *, dry_run: bool = False) -> list[Path]:
    """Remove all but the newest `keep` checkpoints and the best ones; what was removed.

    What only has the name of a checkpoint neither counts nor goes, and no link is followed.
    """
    if directory.is_symlink():
        raise CheckpointError(f"{directory}: is a link; expected the directory of checkpoints itself")
    best = pointers(directory)
    ours = [path for path in checkpoints_in(directory) if is_ours(path)]
    doomed = [path for path in ours[:-keep] if path.name not in best]
    if not dry_run:
        for path in doomed:
            remove(path)
        clean(directory)
    return doomed


def remove(path: Path) -> None:
    """Remove a checkpoint; killed half-way, what is left does not look like one."""
    trash = path.with_name(f".{path.name}.removed.tmp")
    if trash.exists() and _are_remains(trash):
        shutil.rmtree(trash, ignore_errors=True)
    path.rename(trash)
    fsync_directory(path.parent)
    shutil.rmtree(trash, ignore_errors=True)


def clean(directory: Path) -> None:
    """Remove what killed saves and removals left; only the one writer of `directory` may call it."""
    remains = [path for path in sorted(directory.glob(f".{PREFIX}*.tmp")) if _are_remains(path)]
    for path in remains:
        # A save was killed between its two renames: what it replaced is the newest there is.
        final = directory / path.name.removeprefix(".").removesuffix(".before.tmp")
        if path.name.endswith(".before.tmp") and not final.exists():
            path.rename(final)
        else:
            shutil.rmtree(path, ignore_errors=True)


def settle(directory: Path, keep: int) -> None:
    """Do what a killed save left undone: marks of the best, `latest`, removals; for the one writer alone."""
    try:
        clean(directory)
        newest = None
        for path in checkpoints_in(directory):
            try:
                verify(path, hash_files=False)
                figures = read_json(path / STATE).get("figures", {})
            except CheckpointError:
                continue
            mark_best(directory, path, figures)
            newest = path
        if newest:
            point_latest(directory, newest)
        prune(directory, keep)
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be written: {error.strerror}") from error


def point_latest(directory: Path, path: Path) -> None:
    """Name `path` as the newest complete checkpoint of `directory`, unless it is so named."""
    with contextlib.suppress(OSError, UnicodeError):
        if (directory / LATEST).read_text(encoding="utf-8") == f"{path.name}\n":
            return
    with replacing(directory / LATEST) as file:
        file.write(f"{path.name}\n".encode())


def set_aside_after(directory: Path, step: int) -> list[Path]:
    """Put the checkpoints newer than `step` away: kept, but never found again; their new names."""
    newer = [path for path in checkpoints_in(directory) if step_of(path) > step]
    number = 1 + len({path.name.split("-")[1] for path in superseded_in(directory)})
    moved = []
    for path in newer:
        for metric in pointers(directory).get(path.name, []):
            (directory / f"best-{metric}").unlink()
        moved.append(path.rename(directory / f"{SUPERSEDED}-{number}-{path.name}"))
    if moved:
        fsync_directory(directory)
    return moved


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    digits = path.name.rpartition(PREFIX)[2]
    return int(digits) if digits.isdecimal() else -1
