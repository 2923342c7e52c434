"""Reads a ds_config.json into settings of this program and what DeepSpeed gets as it is.

Messages name file, line, key, value and what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphazero.base.errors import ConfigError
from alphazero.base.section import checked, kinds_of, setting
from alphazero.base.text import one_of, shortened
from alphazero.machine.environment import page
from alphazero.settings.deepspeed_keys import (
    AUTOCAST_DTYPES,
    BLOCKS,
    EXAMPLES,
    FROM_STAGE,
    IGNORED,
    KEYS,
    NEUTRAL,
    OPTIMIZERS,
    PASSED_ON,
    REFUSED,
    SCHEDULERS,
    ZERO,
    Key,
    key_at,
)
from alphazero.settings.sections import OptimizerConfig, RunConfig, TrainingConfig

if TYPE_CHECKING:
    from alphazero.base.hjson_file import HjsonFile


@dataclass(frozen=True)
class FileValue:
    """A value for a setting.

    name: of the setting. path: the key, with dots. location: file and line. is_default: not written, but
    what DeepSpeed takes where its block exists. is_flag: given by SET_FLAG.
    """

    name: str
    value: Any
    path: str
    location: str = ""
    is_default: bool = False
    is_flag: bool = False


@dataclass(frozen=True)
class DeepSpeedSettings:
    """The content of a ds_config.json, without the keys it lacks.

    values: in the order of the table; a later one beats an earlier one. precisions_off: those it switches off
    by name; any other may be chosen elsewhere. zero_options, passed_on: what DeepSpeed gets as it is.
    ignored: keys that change nothing. locations: file and line, or flag, of what DeepSpeed gets, by path.
    """

    source: str = ""
    values: tuple[FileValue, ...] = ()
    precisions_off: frozenset[str] = frozenset()
    zero_options: Mapping[str, Any] = field(default_factory=dict)
    passed_on: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    locations: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, path: str, value: object, wanted: str) -> ConfigError:
        """ConfigError about a value that DeepSpeed gets as it is."""
        text = shortened(json.dumps(value, default=str))
        return ConfigError(f"{self.locations.get(path, self.source)}: {path} = {text}: {wanted}")

    def zero_options_at(self, stage: int) -> dict[str, Any]:
        """The options of ZeRO that DeepSpeed gets at this stage."""
        return {name: value for name, value in self.zero_options.items() if stage >= FROM_STAGE.get(name, 0)}

    def passed_on_line(self, stage: int) -> str:
        """One line about what DeepSpeed gets as it is at this ZeRO stage; "" for nothing."""
        zero = {f"{ZERO}.{name}": value for name, value in self.zero_options_at(stage).items()}
        shown = [f"{path} {json.dumps(value)}" for path, value in (zero | dict(self.passed_on)).items()]
        return f"{self.source}: passed on to DeepSpeed: {', '.join(shown)}" if shown else ""

    def ignored_line(self, stage: int) -> str:
        """One line about the keys that change nothing at this ZeRO stage; "" where all do."""
        left_out = [
            f"{ZERO}.{name} (it is for stage {FROM_STAGE[name]} and above)"
            for name in self.zero_options.keys() - self.zero_options_at(stage).keys()
            if self.zero_options[name] is not False
        ]
        ignored = [*self.ignored, *sorted(left_out)]
        return f"{self.source}: ignored ({page('deepspeed.md')}): {', '.join(ignored)}" if ignored else ""


# By name of a setting: its type and its field.
_SETTINGS = {
    entry.name: (kinds_of(section)[entry.name], entry)
    for section in (OptimizerConfig, TrainingConfig, RunConfig)
    for entry in fields(section)
}
PRECISION = "precision"


@dataclass
class _Reading:
    """What a walk over the file gathers: values by path, paths that say "auto", types of blocks."""

    file: HjsonFile
    variants: dict[str, str]
    values: dict[str, Any] = field(default_factory=dict)
    passed_on: dict[str, Any] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)
    autos: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)

    def variant(self, block: str) -> str:
        """Of the outermost object that a block is in."""
        return self.variants.get(block.partition(".")[0], "")

    def error(self, path: str, value: object, wanted: str) -> ConfigError:
        return self.file.error(tuple(path.split(".")), value, wanted)

    def location(self, path: str) -> str:
        return self.file.location(tuple(path.split(".")))


SET_FLAG = "--deepspeed-set"


def read_deepspeed_settings(path: Path, given: Sequence[str] = ()) -> DeepSpeedSettings:
    """Read and check ds_config.json; ConfigError names file, line, key, value and what was expected.

    given: KEY=VALUE each, of SET_FLAG, which beat the file.
    """
    from alphazero.base.hjson_file import read_hjson  # a package that comes with DeepSpeed

    file = read_hjson(path).with_values(SET_FLAG, given)
    reading = _Reading(file, {})
    for block, types in (("optimizer", OPTIMIZERS), ("scheduler", SCHEDULERS)):
        if isinstance(table := file.table.get(block), dict):
            kind = table.get("type")
            if kind is None:
                raise reading.error(block, table, f"has no type; expected one of {', '.join(types)}")
            reading.variants[block] = {name.lower(): name for name in types}.get(str(kind).lower(), "")
    _walk(reading, file.table, "")
    precision, off = _precision(reading)
    values = [*_values_in(reading), *([precision] if precision else [])]
    passed_on = reading.passed_on
    zero = passed_on.pop(ZERO, {})
    if not passed_on.get("flops_profiler", {}).get("enabled"):
        passed_on.pop("flops_profiler", None)
    if zero.get("overlap_comm") and zero.get("contiguous_gradients") is False:
        wanted = "expected contiguous_gradients true or absent beside it"
        raise reading.error(f"{ZERO}.overlap_comm", True, wanted)
    ignored, locations = tuple(reading.ignored), reading.locations
    return DeepSpeedSettings(str(path), tuple(values), off, zero, passed_on, ignored, locations)


def is_off(value: object) -> bool:
    """True where a value asks for nothing: false, null, {}, {"device": "none"}, blocks not enabled.

    A block of blocks (compression_training) is off where none of those within is on.
    """
    if not isinstance(value, dict):
        return value is False or value is None
    if not value or value.get("enabled") is False or value.get("device") == "none":
        return True
    return set(re.findall(r'"enabled": (\w+)', json.dumps(value))) == {"false"}


def _walk(reading: _Reading, table: dict[str, Any], block: str) -> None:
    """Check every key of an object and gather the values."""
    for name, value in table.items():
        written = f"{block}.{name}" if block else name
        path = "bf16" if written == "bfloat16" else written
        key = key_at(path, reading.variant(block))
        is_known = key or path in BLOCKS | REFUSED.keys() | IGNORED or path.partition(".")[0] in PASSED_ON
        if "." in name or not is_known:
            raise _unknown(reading, name, value, block)
        if value is None:  # as absent
            continue
        if value == "auto":
            reading.autos.add(path)
        elif path in BLOCKS:
            if not isinstance(value, dict):
                example = json.dumps(EXAMPLES.get(path, {"enabled": True}))
                raise reading.error(written, value, f"expected an object, as {example}")
            if value.get("device") != "none":
                _walk(reading, value, path)
        elif key is not None:
            reading.values[path] = _read(reading, key, value)
            if not key.sets and path.partition(".")[0] in PASSED_ON:
                _pass_on(reading, path, reading.values[path][0])
        elif path not in REFUSED.keys() | IGNORED:
            _pass_on(reading, path, value)
        elif not is_off(value) and value != NEUTRAL.get(path, 0):
            if path in REFUSED:
                raise reading.error(written, value, f"remove it: {REFUSED[path]}")
            reading.ignored.append(written)


def _pass_on(reading: _Reading, path: str, value: object) -> None:
    *blocks, name = path.split(".")
    inner = reading.passed_on
    for block in blocks:
        inner = inner.setdefault(block, {})
    is_size = isinstance(value, float) and value.is_integer() and bool(blocks)
    reading.locations[path] = reading.location(path)
    inner[name] = int(value) if is_size else value  # type: ignore[call-overload]


def _unknown(reading: _Reading, name: str, value: object, block: str) -> ConfigError:
    """No such key, with the nearest known one and all that do something."""
    variant = reading.variant(block)
    known = [key.name for key in KEYS if key.block == block and variant in (key.variants or (variant,))]
    blocks = [path.rpartition(".")[2] for path in BLOCKS if path.rpartition(".")[0] == block]
    of = f" of {variant}" if block.endswith(".params") else ""
    wanted = one_of(name, sorted({*known, *blocks}))
    return reading.file.error((*filter(None, block.split(".")), name), value, f"no such key{of}; {wanted}")


def _read(reading: _Reading, key: Key, value: object) -> tuple[Any, ...]:
    """What a key's value means for each of its settings, or for DeepSpeed. Raises ConfigError."""
    targets = [_SETTINGS[name] for name in key.sets.split()] or [(key.kind, setting(None, ""))]
    if key.words:
        for word, meaning in key.words.items():
            is_same = str(word).lower() == value.lower() if isinstance(value, str) else word == value
            if is_same and isinstance(word, bool) == isinstance(value, bool):
                return (meaning,)
        listed = ", ".join(json.dumps(word).strip('"') for word in key.words)
        raise reading.error(key.path, value, f"expected one of {listed}")
    values = value if key.name == "betas" else [value] * len(targets)
    if not isinstance(values, list) or len(values) != len(targets):
        raise reading.error(key.path, value, "expected a list of two numbers")
    taken = []
    for (kind, entry), part in zip(targets, values, strict=True):
        if key.minimum is not None:
            entry = field(metadata={**entry.metadata, "minimum": key.minimum})
        try:  # a number in a text is a flag's way to write it
            part = None if isinstance(part, str) and kind is not str else part
            taken.append(checked("", part, kind, entry))
        except ConfigError as error:
            wanted = f"expected {str(error).partition('expected ')[2]}"
            raise reading.error(key.path, value, wanted) from None
    return tuple(taken)


def _values_in(reading: _Reading) -> Iterator[FileValue]:
    """The settings that result from values and defaults of the file, in the order of the table."""
    has_scale = reading.values.get("fp16.enabled") == (True,) or "fp16.enabled" in reading.autos
    for key in KEYS:
        top = key.path.partition(".")[0]
        variant = reading.variant(top)
        if variant not in (key.variants or (variant,)) or (top == "fp16" and not has_scale):
            continue
        values, is_default = reading.values.get(key.path), key.path not in reading.values
        if values is None and key.path not in reading.autos and isinstance(reading.file.table.get(top), dict):
            if key.is_needed:
                raise _missing(reading, key)
            values = None if key.default is None else _read(reading, key, key.default)
        for name, value in zip(key.sets.split(), values or (), strict=False):
            if "muon" not in name or reading.variant("optimizer") == "Muon":
                location = reading.location(key.path)
                yield FileValue(name, value, key.path, location, is_default, location == SET_FLAG)


def _missing(reading: _Reading, key: Key) -> ConfigError:
    """A needed key that its object lacks, or with it the object within its block."""
    block, _, inner = key.block.partition(".")
    table = reading.file.table[block]
    if inner and table.get(inner) is not None:
        return reading.error(key.block, table[inner], f"has no {key.name}; expected one")
    return reading.error(block, table, f"has no {key.path.removeprefix(f'{block}.')}; expected one")


def _precision(reading: _Reading) -> tuple[FileValue | None, frozenset[str]]:
    """The precision that a block switches on, fp32 where none does and none leaves it to this program; and
    the precisions that blocks switch off by name.
    """
    values, is_auto = reading.values, False
    on: dict[str, str] = {}
    off: set[str] = set()
    for name in ("fp16", "bf16", "torch_autocast"):
        (dtype,) = values.get("torch_autocast.dtype", (AUTOCAST_DTYPES["bfloat16"],))
        (switch,) = values.get(f"{name}.enabled", (None,))
        if switch:
            on[f"{name}.enabled"] = dtype if name == "torch_autocast" else name
        elif switch is False and name != "torch_autocast":
            off.add(name)
        elif switch is None and {f"{name}.enabled", name} & reading.autos:
            is_auto = True
        elif switch is None:
            why = f"{name}.enabled is absent, which is false"
            reading.ignored += [f"{path} ({why})" for path in values if path.startswith(f"{name}.")]
    if len({*on.values()}) > 1:
        first, second = list(on)[:2]
        wanted = f"{first.partition('.')[0]} is enabled too; expected one of the two"
        raise reading.error(second, True, wanted)
    for path, precision in on.items():
        location = reading.location(path)
        return FileValue(PRECISION, precision, path, location, is_flag=location == SET_FLAG), frozenset(off)
    fp32 = FileValue(PRECISION, "fp32", "fp16, bf16, torch_autocast", str(reading.file.path), is_default=True)
    return None if is_auto else fp32, frozenset(off)
