"""Reads a ds_config.json by the table of keys; messages name file, line, key, value and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alphazero.errors import ConfigError
from alphazero.training.deepspeed_json.check import is_off
from alphazero.training.deepspeed_json.contradictions import Contradiction, contradiction
from alphazero.training.deepspeed_json.json_file import JsonFile, read_json_file
from alphazero.training.deepspeed_json.key import Key, Meaning
from alphazero.training.deepspeed_json.optimizer_keys import OPTIMIZERS
from alphazero.training.deepspeed_json.precision_keys import AUTOCAST_DTYPES
from alphazero.training.deepspeed_json.settings import DeepSpeedSettings, Ignored, Said
from alphazero.training.deepspeed_json.table import ALIASES, BLOCKS, KEYS, OLD_NAMES, key_at, names_in

ZERO = "zero_optimization"
PRECISION = "training.precision"


@dataclass
class _Reading:
    """What a walk over the file gathers: values by path, paths that say "auto", variants of blocks."""

    file: JsonFile
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
    file = read_json_file(path)
    reading = _Reading(file, _variants(file))
    _walk(reading, file.table, "")
    precision, off = _precision(reading)
    _require_constant_momentum(reading)
    said = list(_said(reading))
    if precision:
        said.append(Said(PRECISION, precision[0], precision[1], reading.place(precision[1])))
    passed_on = _nested(reading, lambda key: key.meaning is Meaning.PASSED_ON)
    zero = passed_on.pop(ZERO, {})
    if not passed_on.get("flops_profiler", {}).get("enabled"):
        passed_on.pop("flops_profiler", None)
    settings = DeepSpeedSettings(
        source=str(path),
        said=tuple(said),
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


def _variants(file: JsonFile) -> dict[str, str]:
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
    """Check every key of an object and gather what it says."""
    for name, value in table.items():
        written = f"{block}.{name}" if block else name
        path = ALIASES.get(written, written)
        if written in OLD_NAMES:
            raise reading.error(written, value, f"an old name; expected {OLD_NAMES[written]}")
        key = None if "." in name else key_at(path, reading.variant(block))
        if key is None:
            raise _unknown(reading, name, value, block)
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
        key = key_at(f"{ZERO}.{name}", "")
        if isinstance(value, dict):
            key = key_at(f"{ZERO}.{name}.device", "")
        assert key is not None, name
        others = tuple(stage for stage in range(4) if stage not in key.stages)
        if value is not False and others:
            yield Ignored(f"{ZERO}.{name}", f"it is for stage {' and '.join(map(str, key.stages))}", others)


def _said(reading: _Reading) -> Iterator[Said]:
    """The settings that values and defaults of the file come to, in the order of the table."""
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


def _settings_of(reading: _Reading, key: Key, value: object, *, is_default: bool) -> Iterator[Said]:
    for target, one in zip(key.sets, key.values(value), strict=True):
        yield Said(target, one, key.path, reading.place(key.path), is_default)


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


def _precision(reading: _Reading) -> tuple[tuple[str, str] | None, frozenset[str]]:
    """The precision that a block switches on, with its key, and those that blocks switch off by name."""
    values = reading.values
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
        elif switch is None and f"{name}.enabled" not in reading.autos and name not in reading.autos:
            why = f"{name}.enabled is absent, which is false"
            reading.ignored += [Ignored(path, why) for path in values if path.startswith(f"{name}.")]
    if len({*on.values()}) > 1:
        first, second = list(on)[:2]
        wanted = f"{first.partition('.')[0]} is enabled too; expected one of the two"
        raise reading.error(second, True, wanted)
    return next(((precision, path) for path, precision in on.items()), None), frozenset(off)


def _require_constant_momentum(reading: _Reading) -> None:
    """ConfigError where a cycle of the learning rate would move Adam's momentum as well."""
    path = "scheduler.params.cycle_momentum"
    if reading.variants.get("scheduler") != "OneCycle" or reading.variants.get("optimizer") == "SGD":
        return
    params = reading.file.block("scheduler").get("params")
    value = params.get("cycle_momentum") if isinstance(params, dict) else None
    if value is not False:
        key = key_at(path, "OneCycle")
        assert key is not None
        raise reading.error(path, value, f"expected false (absent is true): {key.why}")
