"""ds_config.json: what a user may say to DeepSpeed, and the configuration the engine is given.

Precision, ZeRO stage and clipping have one owner each: a flag beats ds_config.json, which beats the
default; a TOML file and ds_config.json that contradict each other are an error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alphazero.config import Config
from alphazero.errors import ConfigError
from alphazero.training.batch_plan import BatchPlan

# Passed to DeepSpeed as they are.
PASSED_ON = (
    "communication_data_type",
    "prescale_gradients",
    "gradient_predivide_factor",
    "comms_logger",
    "flops_profiler",
    "wall_clock_breakdown",
    "steps_per_print",
    "dump_state",
)
# Understood and translated by us.
TRANSLATED = ("zero_optimization", "gradient_clipping", "bf16", "torch_autocast")
# Known to DeepSpeed, owned elsewhere here.
OWNED_ELSEWHERE = {
    "train_batch_size": "--batch-size owns it",
    "train_micro_batch_size_per_gpu": "--micro-batch-size owns it",
    "gradient_accumulation_steps": "it follows from --batch-size and --micro-batch-size",
    "optimizer": "--optimizer owns it",
    "scheduler": "--lr-schedule owns it",
    "fp16": "--precision fp16 owns it",
    "tensorboard": "--tensorboard owns it",
    "wandb": "--wandb owns it",
}


@dataclass(frozen=True)
class DeepSpeedSettings:
    """What a ds_config.json says; None where it is silent."""

    source: str = ""
    zero_stage: int | None = None
    precision: str | None = None
    clip_gradients: float | None = None
    zero_options: Mapping[str, Any] = field(default_factory=dict)
    passed_on: Mapping[str, Any] = field(default_factory=dict)


def read_deepspeed_settings(path: Path) -> DeepSpeedSettings:
    """Read and check ds_config.json; ConfigError names file, key, value and what was wanted."""
    table = _read_object(path)
    # "auto" is how other trainers say "you decide".
    table = {key: value for key, value in table.items() if value != "auto"}
    for key, value in table.items():
        if key in OWNED_ELSEWHERE and value != {"enabled": False}:
            raise ConfigError(f"{path}: {key!r} = {value!r}: wanted it absent: {OWNED_ELSEWHERE[key]}")
        if key not in (*PASSED_ON, *TRANSLATED, *OWNED_ELSEWHERE):
            wanted = ", ".join((*TRANSLATED, *PASSED_ON))
            raise ConfigError(f"{path}: {key!r} = {value!r}: no such key; wanted one of {wanted}")
    zero = dict(_object(path, table, "zero_optimization"))
    stage = zero.pop("stage", None)
    if stage is not None and (not isinstance(stage, int) or stage not in range(4)):
        raise ConfigError(f"{path}: zero_optimization.stage = {stage!r}: wanted 0, 1, 2 or 3")
    clip = table.get("gradient_clipping")
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, (int, float)) or clip < 0):
        raise ConfigError(f"{path}: gradient_clipping = {clip!r}: wanted a number of at least 0")
    return DeepSpeedSettings(
        source=str(path),
        zero_stage=stage,
        precision=_precision(path, table),
        clip_gradients=None if clip is None else float(clip),
        zero_options=zero,
        passed_on={key: table[key] for key in PASSED_ON if key in table},
    )


def merge(config: Config, settings: DeepSpeedSettings) -> Config:
    """`config` with what ds_config.json says of precision, ZeRO stage and clipping."""
    changes: dict[str, dict[str, Any]] = {"training": {}, "optimizer": {}}
    owners = (("training", "precision"), ("training", "zero_stage"), ("optimizer", "clip_gradients"))
    for section, name in owners:
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
    return dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, **changes["training"]),
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


def _read_object(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: {error.msg}; wanted JSON") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; wanted JSON") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {table!r}: wanted an object")
    return table


def _object(path: Path, table: dict[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {key} = {value!r}: wanted an object")
    return value


def _precision(path: Path, table: dict[str, Any]) -> str | None:
    """bf16 where either of DeepSpeed's ways asks for it, fp32 where both are switched off."""
    autocast, bf16 = _object(path, table, "torch_autocast"), _object(path, table, "bf16")
    dtype = autocast.get("dtype", "bfloat16")
    if autocast.get("enabled") and dtype not in ("bfloat16", "torch.bfloat16"):
        raise ConfigError(f"{path}: torch_autocast.dtype = {dtype!r}: wanted 'bfloat16'")
    if autocast.get("enabled") or bf16.get("enabled"):
        return "bf16"
    return "fp32" if autocast or bf16 else None
