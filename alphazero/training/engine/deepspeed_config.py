"""ds_config.json: what a user may say to DeepSpeed, and the configuration the engine is given.

Precision, ZeRO stage and clipping have one owner each: a flag beats ds_config.json, which beats the
default; a TOML file and ds_config.json that contradict each other are an error.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alphazero.config import Config
from alphazero.errors import ConfigError
from alphazero.training.batch_plan import BatchPlan
from alphazero.training.engine.deepspeed_keys import (
    AUTOCAST_DTYPES,
    AUTOCAST_KEYS,
    BF16_KEYS,
    FIXED,
    FP16_KEYS,
    OLD_NAMES,
    PASSED_ON,
    REFUSED,
    TRANSLATED,
    ZERO_FIXED,
    ZERO_KEYS,
    ZERO_OLD_NAMES,
    ZERO_REFUSED,
    Key,
    number,
)
from alphazero.training.engine.json_file import JsonFile, KeyPath, read_json_file


@dataclass(frozen=True)
class DeepSpeedSettings:
    """What a ds_config.json says; None or nothing where it is silent."""

    source: str = ""
    zero_stage: int | None = None
    precision: str | None = None
    # Precisions it switches off by name; any other may be chosen elsewhere.
    precisions_off: frozenset[str] = frozenset()
    clip_gradients: float | None = None
    loss_scale: float | None = None
    loss_scale_window: int | None = None
    zero_options: Mapping[str, Any] = field(default_factory=dict)
    passed_on: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contradiction:
    """A key whose value cannot go with the rest."""

    keys: KeyPath
    value: object
    wanted: str


def read_deepspeed_settings(path: Path) -> DeepSpeedSettings:
    """Read and check ds_config.json; ConfigError names file, line, key, value and what was expected."""
    file = read_json_file(path)
    file = dataclasses.replace(file, table=_without_auto(file.table))
    _check_top(file)
    zero = _zero_options(file)
    stage = zero.pop("stage", None)
    clip = file.table.get("gradient_clipping")
    if clip is not None:
        _require(file, ("gradient_clipping",), clip, number(0))
    precision, off = _precision(file)
    fp16 = file.block("fp16")
    power, window = fp16.get("initial_scale_power"), fp16.get("loss_scale_window")
    settings = DeepSpeedSettings(
        source=str(path),
        zero_stage=stage,
        precision=precision,
        precisions_off=off,
        clip_gradients=None if clip is None else float(clip),
        loss_scale=None if power is None else 2.0 ** int(power),
        loss_scale_window=None if window is None else int(window),
        zero_options=zero,
        passed_on={key: file.table[key] for key in PASSED_ON if key in file.table},
    )
    found = _combination(settings, stage)
    if found is None and stage is not None:
        found = _out_of_place(settings, stage)
    if found is not None:
        raise file.error(found.keys, found.value, found.wanted)
    return settings


def merge(config: Config, settings: DeepSpeedSettings) -> Config:
    """`config` with what ds_config.json says of precision, loss scale, ZeRO stage and clipping.

    Raises ConfigError where a TOML file says otherwise, or the ZeRO stage that results (of a flag, a
    TOML file or the default) cannot go with options of ds_config.json.
    """
    changes: dict[str, dict[str, Any]] = {"training": {}, "optimizer": {}}
    owners = (
        ("training", "precision"),
        ("training", "loss_scale"),
        ("training", "loss_scale_window"),
        ("training", "zero_stage"),
        ("optimizer", "clip_gradients"),
    )
    for section, name in owners:
        said = getattr(settings, name)
        current = getattr(getattr(config, section), name)
        if said is None or name in config.set_by_flag or said == current:
            continue
        if name in config.set_by_file:
            raise _contradicts_file(config, settings, name, f"{name} = {said!r}", current)
        changes[section][name] = said
    precision = config.training.precision
    if precision in settings.precisions_off and "precision" in config.set_by_file - config.set_by_flag:
        raise _contradicts_file(config, settings, "precision", f"{precision}.enabled = false", precision)
    merged = dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, **changes["training"]),
        optimizer=dataclasses.replace(config.optimizer, **changes["optimizer"]),
    )
    stage = merged.training.zero_stage
    found = _combination(settings, stage)
    if found is None and settings.zero_stage is None:
        # Where the file names its own stage, a flag that chose another leaves its options behind.
        found = _out_of_place(settings, stage)
    if found is not None:
        raise ConfigError(f"{settings.source}: {'.'.join(found.keys)} = {found.value!r}: {found.wanted}")
    return merged


def engine_config(config: Config, settings: DeepSpeedSettings, plan: BatchPlan) -> dict[str, Any]:
    """The dict for deepspeed.initialize.

    Precision is not in it: autocast and the loss scale are ours (DeepSpeed's native bf16 and fp16
    blocks break BatchNorm on CPU since 0.19.2), so it sees fp32 parameters and gradients at every stage.
    """
    stage = config.training.zero_stage
    zero = {key: value for key, value in settings.zero_options.items() if stage in ZERO_KEYS[key].stages}
    if stage < 2:
        # DeepSpeed 0.19.8 asserts no overlap with our own accumulation: gradients are reduced in step(),
        # when no backward pass is left to overlap with.
        zero["overlap_comm"] = False
    return {
        "steps_per_print": 2**31 - 1,
        **settings.passed_on,
        # backward() adds up on the rank, step() reduces once and updates: how many passes a step has is
        # the trainer's affair, and ranks may even make unlike numbers of them at stages 0 and 1.
        "managed_gradient_accumulation": False,
        "gradient_accumulation_steps": 1,
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "train_batch_size": plan.micro_batch_size * plan.world_size,
        # At stage 0 FlatGradients clips.
        "gradient_clipping": config.optimizer.clip_gradients if stage else 0.0,
        # Otherwise the device is waited for at each forward pass and step.
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
        "zero_optimization": {**zero, "stage": stage},
        # The optimizer is torch's own: nothing to compile, one arithmetic on every device.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def _contradicts_file(
    config: Config, settings: DeepSpeedSettings, name: str, said: str, current: object
) -> ConfigError:
    return ConfigError(
        f"{settings.source}: {said} contradicts {name} = {current!r} of {config.preset}.toml; "
        "expected one of them absent"
    )


def _without_auto(table: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that say "auto": that is how other trainers say "you decide"."""
    return {
        key: _without_auto(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value != "auto"
    }


def _require(file: JsonFile, keys: KeyPath, value: object, key: Key) -> None:
    if not key.accepts(value):
        raise file.error(keys, value, key.wanted)


def _is_off(value: object) -> bool:
    """True for false, {}, {"enabled": false, ...} and {"device": "none"}."""
    if isinstance(value, dict):
        return not value or value.get("enabled") is False or value == {"device": "none"}
    return value is False


def _unknown(file: JsonFile, keys: KeyPath, value: object, known: Iterable[str]) -> ConfigError:
    """No such key, with the nearest known one, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(keys[-1], names, n=1, cutoff=0.7)
    wanted = near[0] if near else f"one of {', '.join(names)}"
    return file.error(keys, value, f"no such key; expected {wanted}")


def _check_top(file: JsonFile) -> None:
    for key, value in file.table.items():
        if key in PASSED_ON or key in FIXED:
            _require(file, (key,), value, {**PASSED_ON, **FIXED}[key])
        elif key in REFUSED:
            if not _is_off(value):
                raise file.error((key,), value, f"remove it: {REFUSED[key]}")
        elif key in OLD_NAMES:
            raise file.error((key,), value, f"an old name; expected {OLD_NAMES[key]}")
        elif key not in TRANSLATED:
            raise _unknown(file, (key,), value, (*TRANSLATED, *PASSED_ON))


def _zero_options(file: JsonFile) -> dict[str, Any]:
    """The keys of zero_optimization that DeepSpeed is to get, numbers as whole numbers."""
    if isinstance(file.table.get("zero_optimization"), bool):
        value = file.table["zero_optimization"]
        raise file.error(("zero_optimization",), value, 'an old form; expected an object, as {"stage": 1}')
    options: dict[str, Any] = {}
    for key, value in file.block("zero_optimization").items():
        keys = ("zero_optimization", key)
        if key in ZERO_KEYS:
            _require(file, keys, value, ZERO_KEYS[key].key)
            options[key] = int(value) if isinstance(value, float) else value
        elif key in ZERO_FIXED:
            _require(file, keys, value, ZERO_FIXED[key])
        elif key in ZERO_OLD_NAMES:
            raise file.error(keys, value, f"an old name; expected {ZERO_OLD_NAMES[key]}")
        elif key not in ZERO_REFUSED:
            raise _unknown(file, keys, value, ZERO_KEYS)
        elif not _is_off(value):
            raise file.error(keys, value, f"remove it: {ZERO_REFUSED[key]}")
    return options


def _precision(file: JsonFile) -> tuple[str | None, frozenset[str]]:
    """The precision that a block switches on, and those that blocks switch off by name."""
    blocks = {"fp16": FP16_KEYS, "bf16": BF16_KEYS, "torch_autocast": AUTOCAST_KEYS}
    on: dict[str, str] = {}
    off: set[str] = set()
    for name, known in blocks.items():
        block = file.block(name)
        for key, value in block.items():
            if key not in known:
                raise _unknown(file, (name, key), value, known)
            _require(file, (name, key), value, known[key])
        _require_switched_on(file, name)
        precision = AUTOCAST_DTYPES[block.get("dtype", "bfloat16")] if name == "torch_autocast" else name
        if block.get("enabled"):
            on[name] = precision
        elif block.get("enabled") is False and name != "torch_autocast":
            off.add(name)
    if len(on) > 1:
        first, second = list(on)[:2]
        raise file.error((second, "enabled"), True, f"{first} is enabled too; expected one of the two")
    return next(iter(on.values()), None), frozenset(off)


def _require_switched_on(file: JsonFile, name: str) -> None:
    """ConfigError where a block sets something and is off; "auto" (then it is not here) leaves it open."""
    block = file.block(name)
    written = (name, "enabled") in file.lines
    if block.get("enabled") or (written and "enabled" not in block):
        return
    state = "false" if written else "absent, which is false"
    for key, value in block.items():
        if key != "enabled":
            raise file.error((name, key), value, f"remove it: {name}.enabled is {state}")


def _combination(settings: DeepSpeedSettings, stage: int | None) -> Contradiction | None:
    """Keys that cannot stand together; at a stage of None what holds at every stage."""
    options, passed_on = settings.zero_options, settings.passed_on
    divided = passed_on.get("gradient_predivide_factor", 1) != 1
    prescaled = passed_on.get("prescale_gradients", False)
    if divided and prescaled:
        wanted = "remove it: prescale_gradients divides by the ranks, and by nothing else"
        return Contradiction(("gradient_predivide_factor",), passed_on["gradient_predivide_factor"], wanted)
    if options.get("overlap_comm") and options.get("contiguous_gradients") is False:
        wanted = "expected contiguous_gradients true or absent: overlapping needs its two buffers"
        return Contradiction(("zero_optimization", "overlap_comm"), True, wanted)
    if (divided or prescaled) and stage in (2, 3) and options.get("reduce_scatter", True):
        key = "prescale_gradients" if prescaled else "gradient_predivide_factor"
        wanted = f"remove it, or zero_optimization.reduce_scatter false, at ZeRO stage {stage}"
        return Contradiction((key,), passed_on[key], wanted)
    return None


def _out_of_place(settings: DeepSpeedSettings, stage: int) -> Contradiction | None:
    """An option that means nothing at this stage; one that is switched off harms nowhere."""
    for key, value in settings.zero_options.items():
        stages = ZERO_KEYS[key].stages
        if stage not in stages and value is not False:
            wanted = f"expected stage {' or '.join(map(str, stages))}, which is {stage}, or this key absent"
            return Contradiction(("zero_optimization", key), value, wanted)
    return None
