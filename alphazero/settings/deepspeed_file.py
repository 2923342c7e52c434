"""Reads a ds_config.json by the table of keys into this program's terms.

Messages name file, line, key, value and what was expected.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from alphazero.base.errors import ConfigError
from alphazero.base.hjson_file import HjsonFile, read_hjson
from alphazero.settings.deepspeed_key import (
    ALL_STAGES,
    AUTOCAST_DTYPES,
    OPTIMIZERS,
    Key,
    Meaning,
    is_off,
)
from alphazero.settings.deepspeed_keys import (
    ALIASES,
    BLOCKS,
    KEYS,
    OLD_NAMES,
    key_at,
    names_in,
)
from alphazero.settings.sections import OptimizerConfig, RunConfig, TrainingConfig


@dataclass(frozen=True)
class FileValue:
    """A value for a setting.

    target: "section.field". path: the key, with dots. place: file and line. is_default: not written, but what
    DeepSpeed takes where its block exists.
    """

    target: str
    value: Any
    path: str
    place: str = ""
    is_default: bool = False

    @property
    def name(self) -> str:
        """The field."""
        return self.target.partition(".")[2]


@dataclass(frozen=True)
class Ignored:
    """A key that changes nothing; stages: ZeRO stages at which that is so."""

    path: str
    why: str
    stages: tuple[int, ...] = ALL_STAGES


@dataclass(frozen=True)
class DeepSpeedSettings:
    """The content of a ds_config.json, without the keys it lacks.

    values: in the order of the table; a later one beats an earlier one. precisions_off: those it switches off
    by name; any other may be chosen elsewhere. zero_options, passed_on: what DeepSpeed gets as it is.
    """

    source: str = ""
    values: tuple[FileValue, ...] = ()
    precisions_off: frozenset[str] = frozenset()
    zero_options: Mapping[str, Any] = field(default_factory=dict)
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[Ignored, ...] = ()

    def value_of(self, target: str) -> Any:  # noqa: ANN401 - of any setting
        """The value of a setting, "section.field"; None where it has none."""
        return next((one.value for one in reversed(self.values) if one.target == target), None)

    def zero_options_at(self, stage: int) -> dict[str, Any]:
        """The options of ZeRO that DeepSpeed gets at this stage."""
        return {name: value for name, value in self.zero_options.items() if stage in _stages(name)}

    def offloads_at(self, stage: int) -> bool:
        """Whether weights or optimizer state are kept outside the device at this ZeRO stage."""
        return any(name.startswith("offload_") for name in self.zero_options_at(stage))

    def passed_on_line(self, stage: int) -> str:
        """One line about what DeepSpeed gets as it is at this ZeRO stage; "" for nothing."""
        zero = {f"{ZERO}.{name}": value for name, value in self.zero_options_at(stage).items()}
        shown = [f"{path} {json.dumps(value)}" for path, value in (zero | dict(self.passed_on)).items()]
        return f"{self.source}: passed on to DeepSpeed: {', '.join(shown)}" if shown else ""

    def ignored_line(self, stage: int) -> str:
        """One line about the keys that change nothing at this ZeRO stage; "" where all do."""
        ignored = [f"{one.path} ({one.why})" for one in self.ignored if stage in one.stages]
        return f"{self.source}: ignored: {', '.join(ignored)}" if ignored else ""


@dataclass(frozen=True)
class Contradiction:
    """A key whose value cannot go with the rest."""

    path: str
    value: object
    wanted: str


def contradiction(settings: DeepSpeedSettings, stage: int | None) -> Contradiction | None:
    """What cannot stand together at a ZeRO stage; at a stage of None what holds at every stage."""
    options, passed_on = settings.zero_options, settings.passed_on
    divided = passed_on.get("gradient_predivide_factor", 1) != 1
    prescaled = passed_on.get("prescale_gradients", False)
    if divided and prescaled:
        wanted = "remove it: prescale_gradients divides by the ranks, and by nothing else"
        return Contradiction("gradient_predivide_factor", passed_on["gradient_predivide_factor"], wanted)
    if options.get("overlap_comm") and options.get("contiguous_gradients") is False and stage in (None, 2, 3):
        wanted = "expected contiguous_gradients true or absent: overlapping needs its two buffers"
        return Contradiction("zero_optimization.overlap_comm", True, wanted)
    if (divided or prescaled) and stage in (2, 3) and options.get("reduce_scatter", True):
        key = "prescale_gradients" if prescaled else "gradient_predivide_factor"
        wanted = f"remove it, or zero_optimization.reduce_scatter false, at ZeRO stage {stage}"
        return Contradiction(key, passed_on[key], wanted)
    return None


_DEFAULTS = {"optimizer": OptimizerConfig(), "training": TrainingConfig(), "run": RunConfig()}
ZERO = "zero_optimization"
PRECISION = "training.precision"


@dataclass
class _Reading:
    """What a walk over the file gathers: values by path, paths that say "auto", variants of blocks."""

    file: HjsonFile
    variants: dict[str, str]
    values: dict[str, Any] = field(default_factory=dict)
    autos: set[str] = field(default_factory=set)
    ignored: list[Ignored] = field(default_factory=list)

    def variant(self, block: str) -> str:
        """Of the outermost object that a block is in."""
        return self.variants.get(block.partition(".")[0], "")

    def error(self, path: str, value: object, wanted: str) -> ConfigError:
        return self.file.error(tuple(path.split(".")), value, wanted)

    def place(self, path: str) -> str:
        line = self.file.lines.get(tuple(path.split(".")))
        return f"{self.file.path}:{line}" if line else str(self.file.path)


def read_deepspeed_settings(path: Path) -> DeepSpeedSettings:
    """Read and check ds_config.json; ConfigError names file, line, key, value and what was expected."""
    file = read_hjson(path)
    reading = _Reading(file, _variants(file))
    _walk(reading, file.table, "")
    precision, off = _precision(reading)
    _require_constant_momentum(reading)
    values = list(_values_in(reading))
    if precision is not None:
        values.append(precision)
    if reading.variants.get("optimizer") == "Muon":
        # DeepSpeed's schedulers give their rate to all groups of parameters.
        values += [
            replace(one, target="optimizer.muon_learning_rate")
            for one in values
            if one.target == "optimizer.learning_rate" and one.path.startswith("scheduler.")
        ]
    passed_on = _nested(reading, lambda key: key.meaning is Meaning.PASSED_ON)
    zero = passed_on.pop(ZERO, {})
    if not passed_on.get("flops_profiler", {}).get("enabled"):
        passed_on.pop("flops_profiler", None)
    settings = DeepSpeedSettings(
        source=str(path),
        values=tuple(values),
        precisions_off=off,
        zero_options=zero,
        passed_on=passed_on,
        ignored=(*reading.ignored, *_elsewhere(zero)),
    )
    stage = settings.value_of("training.zero_stage")
    if found := contradiction(settings, stage):
        raise _error(reading, found)
    return settings


def _error(reading: _Reading, found: Contradiction) -> ConfigError:
    return reading.error(found.path, found.value, found.wanted)


def _variants(file: HjsonFile) -> dict[str, str]:
    """The types of optimizer and scheduler, which decide what keys their blocks have."""
    variants = {}
    for name in ("optimizer", "scheduler"):
        block = file.table.get(name)
        if not isinstance(block, dict):
            continue
        if "type" not in block:
            raise file.error((name,), block, "has no type; expected one")
        key = key_at(f"{name}.type", "")
        assert key is not None and key.check is not None
        if not key.check.accepts(block["type"]):
            raise file.error((name, "type"), block["type"], key.check.wanted)
        kind: str = block["type"]
        variants[name] = OPTIMIZERS.get(kind.lower(), kind)
    return variants


def _walk(reading: _Reading, table: dict[str, Any], block: str) -> None:
    """Check every key of an object and gather the values."""
    for name, value in table.items():
        written = f"{block}.{name}" if block else name
        path = ALIASES.get(written, written)
        if written in OLD_NAMES:
            if is_off(value):
                continue
            raise reading.error(written, value, f"an old name; expected {OLD_NAMES[written]}")
        key = None if "." in name else key_at(path, reading.variant(block))
        if key is None:
            raise _unknown(reading, name, value, block)
        if value is None:  # as absent
            continue
        if value == "auto":
            reading.autos.add(path)
        elif key.meaning in (Meaning.IGNORED, Meaning.REFUSED):
            _leave_out(reading, key, written, value)
        elif path in BLOCKS:
            if not isinstance(value, dict):
                hint = ', as {"stage": 1}' if path == ZERO and isinstance(value, bool) else ""
                raise reading.error(
                    written, value, f"{'an old form; ' if hint else ''}expected an object{hint}"
                )
            if not _is_none(value):
                _walk(reading, value, path)
        else:
            assert key.check is not None, path
            if not key.check.accepts(value):
                raise reading.error(written, value, key.check.wanted)
            reading.values[path] = value


def _is_none(block: dict[str, Any]) -> bool:
    """True for what offloads nothing."""
    return block.get("device") == "none"


def _unknown(reading: _Reading, name: str, value: object, block: str) -> ConfigError:
    """No such key, with the nearest known one, or all of them."""
    names = names_in(block, reading.variant(block))
    near = difflib.get_close_matches(name[:80], names, n=1, cutoff=0.7)
    of = f" of {reading.variant(block)}" if block.endswith(".params") else ""
    useful = [one for one in names if _does_something(block, one, reading.variant(block))]
    wanted = near[0] if near else f"one of {', '.join(useful)}"
    keys = (*filter(None, block.split(".")), name)
    return reading.file.error(keys, value, f"no such key{of}; expected {wanted}")


def _does_something(block: str, name: str, variant: str) -> bool:
    key = key_at(f"{block}.{name}" if block else name, variant)
    return key is not None and key.meaning in (Meaning.HONOURED, Meaning.PASSED_ON)


def _leave_out(reading: _Reading, key: Key, written: str, value: object) -> None:
    """Note a key that changes nothing; refuse one that would change the results."""
    asks_nothing = key.check.accepts if key.check is not None else is_off
    if asks_nothing(value):
        return
    if key.meaning is Meaning.REFUSED:
        raise reading.error(written, value, f"remove it: {key.why}")
    reading.ignored.append(Ignored(written, key.why))


def _elsewhere(zero: dict[str, Any]) -> Iterator[Ignored]:
    """Options of ZeRO that mean nothing at some stages; one that is switched off needs no word."""
    for name, value in zero.items():
        stages = _stages(name)
        others = tuple(stage for stage in ALL_STAGES if stage not in stages)
        if value is not False and others:
            yield Ignored(f"{ZERO}.{name}", f"it is for stage {' and '.join(map(str, stages))}", others)


def _stages(option: str) -> tuple[int, ...]:
    """The stages at which an option of ZeRO, or an object of options, means something."""
    key = key_at(f"{ZERO}.{option}.device", "") or key_at(f"{ZERO}.{option}", "")
    assert key is not None, option
    return key.stages


def _values_in(reading: _Reading) -> Iterator[FileValue]:
    """The settings that result from values and defaults of the file, in the order of the table."""
    for key in KEYS:
        top = key.path.partition(".")[0]
        if not key.sets or PRECISION in key.sets or (top == "fp16" and not _is_on(reading, top)):
            continue
        if key.variants and reading.variants.get(top, "") not in key.variants:
            continue
        if key.path in reading.values:
            yield from _settings_of(reading, key, reading.values[key.path], is_default=False)
        elif key.path in reading.autos or not isinstance(reading.file.table.get(top), dict):
            continue
        elif key.is_needed:
            raise reading.error(key.block, reading.file.table[top], f"has no {key.name}; expected one")
        elif key.default is not None:
            yield from _settings_of(reading, key, key.default, is_default=True)


def _is_on(reading: _Reading, block: str) -> bool:
    """True for a block that is switched on, or may be by another hand."""
    path = f"{block}.enabled"
    return reading.values.get(path) is True or path in reading.autos


def _settings_of(reading: _Reading, key: Key, value: object, *, is_default: bool) -> Iterator[FileValue]:
    for target, one in zip(key.sets, key.values(value), strict=True):
        # JSON has one kind of number: the setting's default decides which one it is.
        section, _, name = target.partition(".")
        kind = type(getattr(_DEFAULTS[section], name))
        yield FileValue(
            target, kind(one) if kind in (int, float) else one, key.path, reading.place(key.path), is_default
        )


def _nested(reading: _Reading, wanted: Any) -> dict[str, Any]:  # noqa: ANN401
    """Values of the keys that `wanted` takes, as the objects they stand in; whole numbers as such."""
    out: dict[str, Any] = {}
    for path, value in reading.values.items():
        key = key_at(path, reading.variant(path))
        if key is None or not wanted(key):
            continue
        *blocks, name = path.split(".")
        inner = out
        for block in blocks:
            inner = inner.setdefault(block, {})
        is_size = isinstance(value, float) and value.is_integer() and path.startswith(ZERO)
        inner[name] = int(value) if is_size else value
    return out


def _precision(reading: _Reading) -> tuple[FileValue | None, frozenset[str]]:
    """The precision that a block switches on, fp32 where none does and none leaves it to this program; and
    the precisions that blocks switch off by name.
    """
    values, is_auto = reading.values, False
    on: dict[str, str] = {}
    off: set[str] = set()
    for name in ("fp16", "bf16", "torch_autocast"):
        is_autocast = name == "torch_autocast"
        dtype = AUTOCAST_DTYPES[values.get("torch_autocast.dtype", "bfloat16")]
        switch = values.get(f"{name}.enabled")
        if switch:
            on[f"{name}.enabled"] = dtype if is_autocast else name
        elif switch is False and not is_autocast:
            off.add(name)
        elif switch is None and {f"{name}.enabled", name} & reading.autos:
            is_auto = True
        elif switch is None:
            why = f"{name}.enabled is absent, which is false"
            reading.ignored += [Ignored(path, why) for path in values if path.startswith(f"{name}.")]
    if len({*on.values()}) > 1:
        first, second = list(on)[:2]
        wanted = f"{first.partition('.')[0]} is enabled too; expected one of the two"
        raise reading.error(second, True, wanted)
    for path, precision in on.items():
        return FileValue(PRECISION, precision, path, reading.place(path)), frozenset(off)
    fp32 = FileValue(PRECISION, "fp32", "fp16, bf16, torch_autocast", str(reading.file.path), is_default=True)
    return None if is_auto else fp32, frozenset(off)


def _require_constant_momentum(reading: _Reading) -> None:
    """ConfigError where a cycle of the learning rate would move Adam's momentum as well."""
    path = "scheduler.params.cycle_momentum"
    if reading.variants.get("scheduler") != "OneCycle" or reading.variants.get("optimizer") == "SGD":
        return
    params = reading.file.table["scheduler"].get("params")
    value = params.get("cycle_momentum") if isinstance(params, dict) else None
    if value is not False:
        key = key_at(path, "OneCycle")
        assert key is not None
        raise reading.error(path, value, f"expected false (absent is true): {key.why}")
