"""ds_config.json: what a user may say to DeepSpeed, and the configuration the engine is given.

Precision, ZeRO stage and clipping have one owner each: a flag beats ds_config.json, which beats the
default; a TOML file and ds_config.json that contradict each other are an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alphazero.config import Config
from alphazero.errors import ConfigError
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.deepspeed_lint import PASSED_ON, check_stage, read_checked

# Settings that both we and ds_config.json name, by section.
SHARED_SETTINGS = (
    ("training", "precision"),
    ("training", "loss_scale"),
    ("training", "loss_scale_window"),
    ("training", "zero_stage"),
    ("optimizer", "clip_gradients"),
)


@dataclass(frozen=True)
class DeepSpeedSettings:
    """What a ds_config.json says; None where it is silent."""

    source: str = ""
    zero_stage: int | None = None
    precision: str | None = None
    loss_scale: float | None = None
    loss_scale_window: int | None = None
    clip_gradients: float | None = None
    zero_options: Mapping[str, Any] = field(default_factory=dict)
    passed_on: Mapping[str, Any] = field(default_factory=dict)


def read_deepspeed_settings(path: Path) -> DeepSpeedSettings:
    """Read and check ds_config.json; ConfigError names file, key, value and what was wanted."""
    table = read_checked(path)
    zero = dict(table.get("zero_optimization", {}))
    clip, fp16 = table.get("gradient_clipping"), table.get("fp16", {})
    return DeepSpeedSettings(
        source=str(path),
        zero_stage=zero.pop("stage", None),
        precision=_precision(table),
        loss_scale=2.0 ** fp16["initial_scale_power"] if "initial_scale_power" in fp16 else None,
        loss_scale_window=fp16.get("loss_scale_window"),
        clip_gradients=None if clip is None else float(clip),
        zero_options=zero,
        passed_on={key: table[key] for key in PASSED_ON if key in table},
    )


def merge(config: Config, settings: DeepSpeedSettings) -> Config:
    """`config` with what ds_config.json says of precision, ZeRO stage and clipping."""
    changes: dict[str, dict[str, Any]] = {"training": {}, "optimizer": {}}
    for section, name in SHARED_SETTINGS:
        said = getattr(settings, name)
        current = getattr(getattr(config, section), name)
        if said is None or name in config.set_by_flag or said == current:
            continue
        if name in config.set_by_file:
            raise ConfigError(
                f"{settings.source}: {name} = {said!r} contradicts {name} = {current!r} "
                f"of {config.preset}.toml; wanted one of them absent"
            )
        changes[section][name] = said
    training = dataclasses.replace(config.training, **changes["training"])
    check_stage(settings.source, settings.passed_on, settings.zero_options, training.zero_stage)
    return dataclasses.replace(
        config,
        training=training,
        optimizer=dataclasses.replace(config.optimizer, **changes["optimizer"]),
    )


def engine_config(config: Config, settings: DeepSpeedSettings, plan: BatchPlan) -> dict[str, Any]:
    """The dict for deepspeed.initialize.

    Precision is not in it: autocast runs inside the module (its native bf16 block breaks BatchNorm
    on CPU since 0.19.2), so DeepSpeed sees fp32 parameters and gradients at every stage.
    """
    return {
        "steps_per_print": 2**31 - 1,
        **settings.passed_on,
        # We count passes and weigh them ourselves: ranks may make unlike numbers of them.
        "managed_gradient_accumulation": False,
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "gradient_accumulation_steps": 1,
        "train_batch_size": plan.micro_batch_size * plan.world_size,
        "gradient_clipping": config.optimizer.clip_gradients,
        "zero_optimization": {**settings.zero_options, **_zero_options(config.training.zero_stage)},
        # The optimizer is torch's own: nothing to compile, one arithmetic on every device.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def _zero_options(stage: int) -> dict[str, Any]:
    """What our own accumulation needs: DeepSpeed 0.19.8 asserts no overlap with it below stage 2."""
    return {"stage": stage, **({"overlap_comm": False} if stage < 2 else {})}


def _precision(table: Mapping[str, Any]) -> str | None:
    """The one that a block asks for, fp32 where bf16 is there and switched off."""
    autocast = table.get("torch_autocast", {})
    if autocast.get("enabled"):
        return "bf16" if autocast.get("dtype", "bfloat16").endswith("bfloat16") else "fp16"
    for block in ("bf16", "fp16"):
        if table.get(block, {}).get("enabled"):
            return block
    return "fp32" if "torch_autocast" in table or "bf16" in table else None
