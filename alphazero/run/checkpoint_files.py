"""The files of a checkpoint and the directory that holds many: names, manifest, which to find and keep.

Nothing here needs torch, so that `alphazero checkpoint` answers at once.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from alphazero.base.errors import CheckpointError
from alphazero.base.files import fsync_directory, open_regular, sha256_of, write_json
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
STRONGEST = "best-elo"  # names the checkpoint whose Elo is highest
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


def _are_remains(path: Path) -> bool:
    """True for what a killed save or removal of a checkpoint left: no link, its own files and no others."""
    if not REMAINS.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False

    def is_own(file: Path) -> bool:
        unfinished = UNFINISHED_FILE.fullmatch(file.name)
        name = unfinished[1] if unfinished else file.name
        return name in (*CONTENTS, MANIFEST) and file.is_file() and not file.is_symlink()

    return all(is_own(file) for file in path.iterdir())


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


def figures_of(path: Path) -> dict[str, float]:
    """The figures of the validation at the checkpoint `path`. Raises CheckpointError."""
    figures = read_json(path / STATE).get("figures", {})
    if not isinstance(figures, dict) or not all(map(is_number, figures.values())):
        raise CheckpointError(f"{path / STATE}: figures {quoted(figures)}: expected numbers")
    return figures


def best_of(directory: Path) -> dict[str, tuple[Path, float]]:
    """By metric, the best complete checkpoint (the first of equals) and its figure."""
    best: dict[str, tuple[Path, float]] = {}
    rated = (directory / STRONGEST).exists() and _read_strongest(directory / STRONGEST)
    for path in checkpoints_in(directory):
        try:
            verify(path, hash_files=False)
            figures = figures_of(path)
        except CheckpointError:
            continue
        if rated and rated[0] == path.name:
            figures = {**figures, "elo": rated[1]}
        best |= {metric: (path, figures[metric]) for metric in improved(figures, best)}
    return best


def improved(figures: Mapping[str, float], best: Mapping[str, tuple[Path, float]]) -> tuple[str, ...]:
    """The metrics in which `figures` beat those of the best checkpoints."""

    def is_better(value: float, metric: str) -> bool:
        if metric not in best:
            return not math.isnan(value)
        return value > best[metric][1] if BEST_METRICS[metric] else value < best[metric][1]

    return tuple(name for name in BEST_METRICS if name in figures and is_better(figures[name], name))


def mark_strongest(path: Path, elo: float) -> None:
    """Remember a checkpoint that `alphazero rate` found to be the strongest."""
    write_json(path.parent / STRONGEST, {"checkpoint": path.name, "value": elo})


def _read_strongest(file: Path) -> tuple[str, float] | None:
    """Name and Elo; None for a damaged file."""
    try:
        pointer = read_json(file)
    except CheckpointError:
        return None
    name, elo = pointer.get("checkpoint"), pointer.get("value")
    return (name, float(elo)) if isinstance(name, str) and is_number(elo) else None


def find_best(directory: Path, metric: str, *, hash_files: bool = True) -> Path:
    """The best complete checkpoint by `metric`; CheckpointError where there is none."""
    if metric not in BEST_METRICS:
        raise CheckpointError(f"best-{metric}: no such metric; expected one of {', '.join(BEST_METRICS)}")
    best = best_of(directory)
    if metric not in best:
        raise CheckpointError(f"{directory}: no best-{metric}; there is {', '.join(best) or 'none yet'}")
    path, _ = best[metric]
    verify(path, hash_files=hash_files)
    return path


def prune(directory: Path, keep: int, *, dry_run: bool = False) -> list[Path]:
    """Remove all but the newest `keep` checkpoints and the best ones; what was removed.

    What only has the name of a checkpoint neither counts nor goes, and no link is followed.
    """
    if directory.is_symlink():
        raise CheckpointError(f"{directory}: is a link; expected the directory of checkpoints itself")
    best = [path for path, _ in best_of(directory).values()]
    ours = [path for path in checkpoints_in(directory) if is_ours(path)]
    doomed = [path for path in ours[:-keep] if path not in best]
    if not dry_run:
        for path in doomed:
            remove(path)
        clean(directory)
    return doomed


def remove(path: Path) -> None:
    """Remove a checkpoint; killed half-way, what is left does not look like one."""
    trash = path.with_name(f".{path.name}.removed.tmp")
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
    """Do what a killed save left undone; for the one writer alone."""
    try:
        clean(directory)
        prune(directory, keep)
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be written: {error.strerror}") from error


def set_aside_after(directory: Path, step: int) -> list[Path]:
    """Put the checkpoints newer than `step` away: kept, but never found again; their new names."""
    newer = [path for path in checkpoints_in(directory) if step_of(path) > step]
    number = 1 + len({path.name.split("-")[1] for path in superseded_in(directory)})
    moved = []
    for path in newer:
        moved.append(path.rename(directory / f"{SUPERSEDED}-{number}-{path.name}"))
    if moved:
        (directory / STRONGEST).unlink(missing_ok=True)  # of steps that may come again
        fsync_directory(directory)
    return moved


def step_of(path: Path) -> int:
    """The step in a checkpoint's name."""
    digits = path.name.rpartition(PREFIX)[2]
    return int(digits) if digits.isdecimal() else -1
