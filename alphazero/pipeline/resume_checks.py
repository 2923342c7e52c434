"""What must be as it was for a run to go on from its checkpoint."""

from __future__ import annotations

import dataclasses

from alphazero.config import NetworkConfig, OptimizerConfig, TrainingConfig
from alphazero.data.sampling.window import Window
from alphazero.errors import CheckpointError
from alphazero.run.run_directory import RunDirectory
from alphazero.training.checkpoint.checkpoint import TrainingState


def check_same_run(
    run: RunDirectory,
    saved: TrainingState,
    network: NetworkConfig,
    optimizer: OptimizerConfig,
    training: TrainingConfig,
) -> None:
    """CheckpointError where going on with these settings would be another run."""
    pairs = (
        ("network", saved.config["network"], dataclasses.asdict(network)),
        ("optimizer", saved.config["optimizer"]["optimizer"], optimizer.optimizer),
        ("batch size", saved.batch_size, training.batch_size),
        ("seed", saved.seed, training.seed),
    )
    for name, before, now in pairs:
        _require_same(run, saved.step, name, before, now)


def check_same_data(run: RunDirectory, saved: TrainingState, mode: str, window: Window | None) -> None:
    """CheckpointError where the data is not what the checkpoint learned from. mode: of SelfPlayConfig."""
    before = "supervised" if not saved.self_play else saved.config["self_play"]["mode"]
    _require_same(run, saved.step, "--mode", before, mode)
    if before == "supervised":
        assert window is not None
        _require_same(run, saved.step, "data", saved.window_id[:12], window.id[:12])


def _require_same(run: RunDirectory, step: int, name: str, before: object, now: object) -> None:
    """Every rank finds the same: all have the same settings and checkpoint."""
    if before != now:
        raise CheckpointError(
            f"{run.path}: {name} was {before!r} at step {step}, is {now!r}; "
            "expected the same, or --fresh-start",
            found_by_all_ranks=True,
        )
