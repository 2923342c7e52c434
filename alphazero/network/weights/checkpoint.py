"""A checkpoint: one directory, whole or absent, readable at any world size and ZeRO stage.

checkpoints/step-00001000/
  weights.safetensors    parameters and BatchNorm statistics, fp32
  ema.safetensors        their moving averages, where a run keeps them
  champion.safetensors   the network that plays, where a gate decides
  optimizer.safetensors  <parameter>/<key> and `step`, consolidated
  lanes.arrow            games under way, where a run plays them (play/lanes.py)
  state.json             step, seed, micro-batch size, window, settings, world size, loss scale, figures
  manifest.json          magic, version, size and sha256 of the others
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from alphazero.base.errors import CheckpointError
from alphazero.base.files import fsync_directory, fsync_file, replacing, write_json
from alphazero.base.records import from_table
from alphazero.base.text import reason
from alphazero.network.weights.checks import safetensors_header_fault, values_fault
from alphazero.run.checkpoint_files import (
    CHAMPION,
    EMA,
    LANES,
    OPTIMIZER,
    PREFIX,
    STATE,
    WEIGHTS,
    read_json,
    read_manifest,
    require_ours,
    verify,
    verify_file,
    write_manifest,
)

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class TrainingState:
    """Everything but tensors that a resumed run needs to continue as if it had never stopped.

    step: completed steps. window_id: hash of the data the order is a function of. data_offset: steps the
    order of the data runs ahead of the step count, after a return to an earlier checkpoint. loss_scale:
    LossScale's state. elapsed_s: wall time of the run up to here, over all its starts. figures: of the
    validation at this step, empty where none was made. self_play: the state of the generations
    (generations.py), empty where games were given. num_threads: compute threads of rank 0, on which fp32 sums
    on a CPU depend. kernels: of evaluations on CUDA (inference/kernels.py), squeeze, attention: what
    trained squeeze-excitation and an attention body there; empty where none were chosen.
    """

    step: int
    num_steps: int
    seed: int
    batch_size: int
    micro_batch_size: int
    window_id: str
    world_size: int
    config: dict[str, Any]
    zero_stage: int = 0
    precision: str = "fp32"
    data_offset: int = 0
    skipped_steps: int = 0
    loss_scale: dict[str, float] = field(default_factory=dict)
    elapsed_s: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    self_play: dict[str, Any] = field(default_factory=dict)
    num_threads: int = 0
    kernels: str = ""
    squeeze: str = ""
    attention: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint in memory; tensors fp32, lanes an Arrow file."""

    state: TrainingState
    weights: Tensors
    optimizer: Tensors
    ema: Tensors | None = None
    lanes: bytes | None = None
    champion: Tensors | None = None


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` below `directory`; a crash at any moment leaves it whole or absent."""
    final = directory / f"{PREFIX}{checkpoint.state.step:08d}"
    temporary = directory / f".{final.name}.tmp"
    files = {WEIGHTS: checkpoint.weights, OPTIMIZER: checkpoint.optimizer}
    optional = {EMA: checkpoint.ema, CHAMPION: checkpoint.champion}
    tensors = files | {name: content for name, content in optional.items() if content is not None}
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, content in tensors.items():
            plain = {key: tensor.detach().to("cpu").contiguous() for key, tensor in content.items()}
            save_file(plain, temporary / name)
        names = [*tensors, STATE]
        if checkpoint.lanes is not None:
            names.append(LANES)
            with replacing(temporary / LANES) as file:
                file.write(checkpoint.lanes)
        write_json(temporary / STATE, asdict(checkpoint.state))
        write_manifest(temporary, names)
        mode = (temporary / STATE).stat().st_mode & 0o777
        for name in tensors:
            (temporary / name).chmod(mode)  # safetensors makes its files for the owner alone
            fsync_file(temporary / name)
        fsync_directory(temporary)
        _rename_over(temporary, final)
        fsync_directory(directory)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        cause = error.strerror if isinstance(error, OSError) else reason(error)
        raise CheckpointError(f"{final}: cannot be written: {cause}") from error
    return final


def _rename_over(temporary: Path, final: Path) -> None:
    """Give `temporary` the name `final`; one of that name from before goes only when this one stands."""
    before = final.with_name(f".{final.name}.before.tmp")
    shutil.rmtree(before, ignore_errors=True)
    if final.is_symlink() or final.exists():
        require_ours(final)
        final.rename(before)
    try:
        temporary.rename(final)
    except OSError:
        if before.exists():
            before.rename(final)
        raise
    shutil.rmtree(before, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint after verifying it; CheckpointError names the file and the fault."""
    verify(path)
    state = read_state(path)
    names = read_manifest(path).keys()
    tensors = {name: _load_tensors(path / name) for name in names - {STATE, LANES}}
    lanes = (path / LANES).read_bytes() if LANES in names else None
    return Checkpoint(
        state, tensors[WEIGHTS], tensors[OPTIMIZER], tensors.get(EMA), lanes, tensors.get(CHAMPION)
    )


def load_weights(path: Path) -> tuple[TrainingState, Tensors, bool]:
    """The weights of a checkpoint as it plays, and whether they are averages; no other file is read through.

    Raises CheckpointError.
    """
    verify(path, hash_files=False)
    entries = read_manifest(path)
    name = EMA if EMA in entries else WEIGHTS
    verify_file(path / name, entries[name])
    return read_state(path), _load_tensors(path / name), name == EMA


def _load_tensors(path: Path) -> Tensors:
    """The tensors of one file, finite; CheckpointError names the file and the fault."""
    try:
        fault = safetensors_header_fault(path)
        tensors = {} if fault else load_file(path)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {reason(error)}; expected a safetensors file") from error
    if fault:
        raise CheckpointError(f"{path}: {fault}; expected a safetensors file")
    if fault := values_fault(tensors):
        raise CheckpointError(f"{path}: {fault}")
    return tensors


def read_state(path: Path) -> TrainingState:
    """The state alone of the checkpoint at `path`."""
    try:
        return from_table(TrainingState, read_json(path / STATE))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / STATE}: {reason(error)}") from error
