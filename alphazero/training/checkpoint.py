"""Checkpoints: one directory, whole or absent, readable at any world size and ZeRO stage.

checkpoints/step-00001000/
  weights.safetensors    parameters and BatchNorm statistics, fp32
  optimizer.safetensors  <parameter>/<key> and `step`, consolidated
  state.json             step, seed, micro-batch size, window, settings, world size
  manifest.json          magic, version, size and sha256 of the three
checkpoints/latest       name of the newest complete one (written last)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from alphazero.errors import CheckpointError
from alphazero.files import fsync_directory, fsync_file, replacing, sha256_of, write_json

MAGIC = "alphazero-checkpoint"
VERSION = 1
WEIGHTS, OPTIMIZER, STATE, MANIFEST = (
    "weights.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
)
LATEST = "latest"
PREFIX = "step-"


@dataclass(frozen=True)
class TrainingState:
    """Everything but tensors that a resumed run needs to continue as if it had never stopped.

    step: completed steps. window_id: hash of the data the order is a function of.
    """

    step: int
    num_steps: int
    seed: int
    batch_size: int
    micro_batch_size: int
    window_id: str
    world_size: int
    config: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint in memory; tensors fp32 on the CPU."""

    state: TrainingState
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` below `directory`; a crash at any moment leaves it whole or absent."""
    final = directory / f"{PREFIX}{checkpoint.state.step:08d}"
    temporary = directory / f".{final.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(_plain(checkpoint.weights), temporary / WEIGHTS)
        save_file(_plain(checkpoint.optimizer), temporary / OPTIMIZER)
        write_json(temporary / STATE, asdict(checkpoint.state))
        write_json(temporary / MANIFEST, _manifest(temporary))
        for name in (WEIGHTS, OPTIMIZER):
            fsync_file(temporary / name)
        fsync_directory(temporary)
        _rename_over(temporary, final)
        fsync_directory(directory)
        with replacing(directory / LATEST) as file:
            file.write(f"{final.name}\n".encode())
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"{final}: cannot be written: {error.strerror}") from error
    return final


def _rename_over(temporary: Path, final: Path) -> None:
    """Give `temporary` the name `final`; one of that name from before goes only when this one stands."""
    before = final.with_name(f".{final.name}.before.tmp")
    shutil.rmtree(before, ignore_errors=True)
    if final.exists():
        final.rename(before)
    try:
        temporary.rename(final)
    except OSError:
        if before.exists():
            before.rename(final)
        raise
    shutil.rmtree(before, ignore_errors=True)


def prune(directory: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what interrupted saves left."""
    for path in directory.glob(f".{PREFIX}*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    for path in checkpoints_in(directory)[:-keep]:
        # Renamed first: a half-removed checkpoint must not look like one.
        doomed = path.with_name(f".{path.name}.tmp")
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def checkpoints_in(directory: Path) -> list[Path]:
    """Checkpoint directories, oldest first."""
    return sorted(path for path in directory.glob(f"{PREFIX}*") if path.is_dir())


def find_newest(directory: Path, say: Callable[[str], None]) -> Path | None:
    """The newest complete checkpoint; `say` gets a line about each one passed over."""
    for path in reversed(checkpoints_in(directory)):
        try:
            verify(path)
        except CheckpointError as error:
            say(f"passed over: {error}")
        else:
            return path
    return None


def verify(path: Path) -> None:
    """Check magic, version, sizes and checksums; CheckpointError names the file and the fault."""
    manifest = _read_json(path / MANIFEST)
    if manifest.get("magic") != MAGIC:
        raise CheckpointError(f"{path / MANIFEST}: magic {manifest.get('magic')!r}: wanted {MAGIC!r}")
    if manifest.get("version") != VERSION:
        raise CheckpointError(f"{path / MANIFEST}: version {manifest.get('version')!r}: wanted {VERSION}")
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file}: missing; wanted {expected['size_bytes']} bytes")
        if file.stat().st_size != expected["size_bytes"]:
            raise CheckpointError(f"{file}: {file.stat().st_size} bytes; wanted {expected['size_bytes']}")
        if (digest := sha256_of(file)) != expected["sha256"]:
            raise CheckpointError(f"{file}: sha256 {digest[:12]}...; wanted {expected['sha256'][:12]}...")


def load(path: Path) -> Checkpoint:
    """Read a checkpoint after verifying it."""
    verify(path)
    try:
        state = TrainingState(**_read_json(path / STATE))
    except TypeError as error:
        raise CheckpointError(f"{path / STATE}: {error}") from error
    return Checkpoint(state, load_file(path / WEIGHTS), load_file(path / OPTIMIZER))


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}


def _manifest(directory: Path) -> dict[str, Any]:
    files = {
        name: {"size_bytes": (directory / name).stat().st_size, "sha256": sha256_of(directory / name)}
        for name in (WEIGHTS, OPTIMIZER, STATE)
    }
    return {"magic": MAGIC, "version": VERSION, "files": files}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}; wanted JSON") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: wanted a JSON object")
    return value
