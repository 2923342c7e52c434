"""The settings of a run: dataclasses, their TOML form, and one flag a field.

Defaults stand here; a preset in configs/*.toml holds differences only; a flag beats both.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    pass
else:
    pass

PRESET_DIRECTORY = Path(__file__).resolve().parent.parent / "configs"


def setting(
    default: Any,
    help_text: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A dataclass field with what its flag needs: help, allowed words, allowed range (inclusive)."""
    metadata = {"help": help_text, "choices": choices, "minimum": minimum, "maximum": maximum}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of the network; two networks of equal NetworkConfig have exchangeable weights."""

    game: str = setting("chess", "game the network plays", choices=("chess", "connect4", "tictactoe"))
    blocks: int = setting(20, "residual blocks of the tower", minimum=1, maximum=256)
    filters: int = setting(256, "channels of the tower", minimum=1, maximum=4096)
    se_ratio: int = setting(0, "squeeze-excitation: filters / units in the squeeze; 0 is none", minimum=0)
    value_channels: int = setting(32, "channels of the value head's 1x1 convolution", minimum=1)
    value_hidden: int = setting(128, "units of the value head's hidden layer", minimum=1)
    moves_left: bool = setting(False, "add a head that predicts how many plies are left")
    moves_left_channels: int = setting(8, "channels of the moves-left head's 1x1 convolution", minimum=1)
    moves_left_hidden: int = setting(128, "units of the moves-left head's hidden layer", minimum=1)


@dataclass(frozen=True)
class DataConfig:
    """Where positions come from and how they are read."""

    data: tuple[str, ...] = setting((), "game stores, PGN files or directories to train on")
    validation_data: tuple[str, ...] = setting((), "the same, to validate on")
    validation_share: float = setting(
        0.05, "share of the last games held out when there is no validation data", minimum=0, maximum=0.5
    )
    history_fill: str = setting("fen_only", "positions before a game's first", choices=("no", "fen_only"))
    num_workers: int = setting(-1, "threads that encode positions, a rank; -1 chooses", minimum=-1)
    cache_dir: str = setting("cache", "where imported raw files are kept")


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and the learning rate over the run."""

    optimizer: str = setting("adamw", "optimizer; sgd is with Nesterov momentum", choices=("adamw", "sgd"))
    learning_rate: float = setting(0.001, "peak learning rate", minimum=0)
    lr_scaling: str = setting(
        "none", "scale the rate with batch size / 1024", choices=("none", "sqrt", "linear")
    )
    lr_schedule: str = setting("cosine", "rate after warm-up", choices=("constant", "step", "cosine"))
    lr_milestones: tuple[int, ...] = setting((), "step schedule: steps at which the rate is multiplied")
    lr_decay: float = setting(0.1, "step schedule: the factor", minimum=0, maximum=1)
    lr_final_share: float = setting(0.01, "cosine schedule: last rate / peak rate", minimum=0, maximum=1)
    warmup_steps: int = setting(100, "steps of linear warm-up", minimum=0)
    weight_decay: float = setting(1e-4, "decay, not on biases and BatchNorm", minimum=0)
    momentum: float = setting(0.9, "momentum of sgd", minimum=0, maximum=1)
    adam_beta1: float = setting(0.9, "AdamW's first moment", minimum=0, maximum=1)
    adam_beta2: float = setting(0.999, "AdamW's second moment", minimum=0, maximum=1)
    clip_gradients: float = setting(10.0, "largest gradient norm; 0 is no clipping", minimum=0)


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms of the loss."""

    policy_weight: float = setting(1.0, "weight of the policy loss", minimum=0)
    value_weight: float = setting(1.0, "weight of the value loss", minimum=0)
    moves_left_weight: float = setting(0.01, "weight of the moves-left loss", minimum=0)
    mask_illegal: bool = setting(True, "give illegal moves no share of the policy")


@dataclass(frozen=True)
class TrainingConfig:
    """Length, batches, precision and rhythm of training."""

    batch_size: int = setting(1024, "positions a step over all ranks", minimum=1)
    micro_batch_size: int = setting(0, "positions a forward pass; 0 chooses", minimum=0)
    steps: int = setting(0, "steps of the run; 0 counts epochs instead", minimum=0)
    epochs: float = setting(1.0, "passes over the data when steps is 0", minimum=0)
    precision: str = setting("fp32", "arithmetic of the network", choices=("fp32", "bf16", "fp16"))
    zero_stage: int = setting(0, "DeepSpeed ZeRO stage", minimum=0, maximum=3)
    seed: int = setting(0, "seed of weights and data order", minimum=0)
    checkpoint_interval: int = setting(1000, "steps between checkpoints", minimum=1)
    keep_checkpoints: int = setting(3, "newest checkpoints to keep", minimum=1)
    validation_interval: int = setting(500, "steps between validations; 0 is never", minimum=0)
    validation_positions: int = setting(8192, "positions a validation", minimum=1)
    log_interval: int = setting(10, "steps between log lines and TensorBoard points", minimum=1)
    channels_last: bool = setting(True, "memory layout that convolutions like")


@dataclass(frozen=True)
class RunConfig:
    """Where a run lives and what it tells."""

    run_name: str = setting("", "name of the run directory; the preset's name if empty")
    runs_dir: str = setting("runs", "directory that holds the runs")
    tensorboard: bool = setting(True, "write TensorBoard events")
    wandb: bool = setting(False, "log to Weights & Biases as well (pip install wandb)")


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)
    preset: str = ""


SECTIONS: dict[str, type] = {
    "network": NetworkConfig,
    "data": DataConfig,
    "optimizer": OptimizerConfig,
    "loss": LossConfig,
    "training": TrainingConfig,
    "run": RunConfig,
}
