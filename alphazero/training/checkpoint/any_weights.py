"""What `--weights` may name: a weights file, a run, one of its checkpoints, or an lc0 network."""

from __future__ import annotations

from pathlib import Path

import torch

from alphazero.errors import CheckpointError, WeightsError
from alphazero.files import given_path
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.network.weights.weights import (
    Metadata,
    WeightsFile,
    build_network,
    check_state_dict,
    network_config_of,
    read_weights,
)
from alphazero.training.checkpoint.checkpoint import load_weights
from alphazero.training.checkpoint.files import (
    BEST_METRICS,
    LATEST,
    MANIFEST,
    PREFIX,
    STATE,
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


def open_network(name: str, device: torch.device, flag: str = "--weights") -> tuple[AlphaZeroNet, Metadata]:
    """The network that `name` means, in eval mode on `device`, and what its file says of it.

    Of a checkpoint these are the averaged weights where it has some. Raises WeightsError and CheckpointError.
    """
    weights = open_weights(name, flag)
    return build_network(Path(name), weights).to(device).eval(), weights.metadata


def open_weights(name: str, flag: str = "--weights") -> WeightsFile:
    """The weights that `name` means, on the CPU. Raises WeightsError and CheckpointError."""
    path = given_path(name, flag)
    run, at, which = name.rpartition(AT)
    if at and not path.exists():
        return _of_run(Path(run), which, name, flag)
    if (path / MANIFEST).is_file():
        return weights_of_checkpoint(path)
    if path.is_dir():
        return _of_run(path, "", name, flag)
    if not path.exists():
        raise WeightsError(f"{flag} {name}: no such file or directory; expected {SPELLINGS}")
    # A file of a checkpoint has no header of its own: it means the checkpoint.
    if (path.parent / MANIFEST).is_file() and path.is_file():
        return weights_of_checkpoint(path.parent)
    return read_weights(path)


def weights_of_checkpoint(path: Path) -> WeightsFile:
    """The weights of a complete checkpoint as it plays: averaged where it has averages."""
    state, tensors, averaged = load_weights(path)
    network = state.config.get("network")
    config = network_config_of(path / STATE, network)
    metadata: Metadata = {"step": state.step, "run": path.absolute().parent.parent.name, "averaged": averaged}
    return WeightsFile(config, check_state_dict(path, tensors), metadata)


def _of_run(run: Path, which: str, name: str, flag: str) -> WeightsFile:
    """The newest checkpoint of a run, or the one that `which` names."""
    directory = run / CHECKPOINTS if (run / CHECKPOINTS).is_dir() else run
    if not directory.is_dir():
        raise WeightsError(f"{flag} {name}: no such file or directory; expected {SPELLINGS}")
    metric = which.removeprefix(BEST)
    if which in ("", LATEST):
        found = _newest(directory, f"{flag} {name}")
    elif which.startswith(BEST) or metric in BEST_METRICS:
        found = find_best(directory, metric, hash_files=False)
    elif step := STEP.fullmatch(which):
        found = directory / f"{PREFIX}{int(step[1]):08d}"
        if not found.is_dir():
            names = [str(step_of(path)) for path in checkpoints_in(directory)]
            raise CheckpointError(
                f"{flag} {name}: no such checkpoint; there are steps {', '.join(names) or 'none'}"
            )
    else:
        raise WeightsError(f"{flag} {name}: {which!r} names no checkpoint; expected {SPELLINGS}")
    return weights_of_checkpoint(found)


def _newest(directory: Path, name: str) -> Path:
    passed_over: list[str] = []
    found = find_newest(directory, passed_over.append, hash_files=False)
    if found is None:
        told = "; ".join(passed_over) or "there is none yet"
        raise CheckpointError(f"{name}: no complete checkpoint ({told}); expected {SPELLINGS}")
    return found
