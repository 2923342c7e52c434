"""The weights of a run as files of their own, for people to take away: the newest, and the best of each kind.

Each is written under another name and renamed, so that it is whole at every moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from alphazero.errors import AlphaZeroError
from alphazero.network.weights.weights import (
    Metadata,
    WeightsFile,
    best_weights_file_name,
    read_weights,
    weights_file_name,
    write_weights,
)
from alphazero.pipeline.start.run_start import RunStart
from alphazero.training.checkpoint.any_weights import weights_of_checkpoint
from alphazero.training.checkpoint.checkpoint import Checkpoint
from alphazero.training.checkpoint.files import BEST_METRICS, find_best, step_of
from alphazero.training.loop.job import Job


def newest_path(job: Job) -> Path:
    """The file of the newest weights."""
    return job.run.path / weights_file_name(job.config.network)


def best_path(job: Job, metric: str) -> Path:
    """The file of the weights that were best in `metric` so far."""
    return job.run.path / best_weights_file_name(job.config.network, metric)


def write_newest(job: Job, checkpoint: Checkpoint) -> None:
    """Write the checkpoint's weights, averaged where it has averages."""
    write_weights(newest_path(job), _weights_of(job, checkpoint))


def write_best(job: Job, checkpoint: Checkpoint, metrics: Iterable[str]) -> None:
    """Write them for each metric in which the checkpoint is the best so far."""
    for metric in metrics:
        write_weights(best_path(job, metric), _weights_of(job, checkpoint))


def keep_weights(job: Job, start: RunStart) -> None:
    """On the ranks that write: make the files again that are gone or are not of the checkpoints marked best.

    A killed run may have left a mark without its file, and a run that goes on from an earlier step has other
    best ones than before. Raises AlphaZeroError.
    """
    if not start.writes or not start.resumed:
        return
    if not newest_path(job).exists():
        write_newest(job, start.resumed)
    for metric in BEST_METRICS:
        _keep_best(job, metric)


def _keep_best(job: Job, metric: str) -> None:
    file = best_path(job, metric)
    try:
        best = find_best(job.run.checkpoints, metric, hash_files=False)
    except AlphaZeroError:  # none is marked
        file.unlink(missing_ok=True)
        return
    if _step_in(file) != step_of(best):
        write_weights(file, weights_of_checkpoint(best))


def _step_in(file: Path) -> object:
    """The step that a weights file tells; None where there is no such file, or a damaged one."""
    try:
        return read_weights(file).metadata.get("step")
    except AlphaZeroError:
        return None


def _weights_of(job: Job, checkpoint: Checkpoint) -> WeightsFile:
    metadata: Metadata = {
        "step": checkpoint.state.step,
        "run": job.run.path.name,
        "averaged": checkpoint.ema is not None,
    }
    return WeightsFile(job.config.network, checkpoint.ema or checkpoint.weights, metadata)
