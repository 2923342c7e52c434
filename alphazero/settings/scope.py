"""What a resume does with each setting, by its scope: keep the checkpoint's value or list a change."""

from __future__ import annotations

import dataclasses
import shlex
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from alphazero.base.errors import CheckpointError, ConfigError
from alphazero.base.section import Scope, checked, flag_of, json_ready, scope_of
from alphazero.base.text import escaped, quoted
from alphazero.games.outside.names import class_of, version_now
from alphazero.settings.load import SECTIONS, Config, to_table
from alphazero.settings.sections import AUTO

# Their changes are not worth a line of the log.
_SILENT = (Scope.REPORTING, Scope.START, Scope.NODE)
_OF_A_START = (Scope.START, Scope.NODE)


@dataclass(frozen=True)
class Change:
    """One setting of [section], with its value in the checkpoint and its value now (as JSON has them)."""

    section: str
    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} {shown(self.before)} -> {shown(self.now)}"

    @property
    def scope(self) -> Scope:
        """Who may change the setting."""
        return scope_of(SECTIONS[self.section], self.name)


def changed_settings(saved: Mapping[str, Any], config: Config) -> list[Change]:
    """Every setting that is not what the checkpoint's settings `saved` (by section) say, in their order.

    A field that the checkpoint's program did not have counts as that field's default.
    """
    changes = []
    for section, kind in SECTIONS.items():
        of_section = saved.get(section)
        before = of_section if isinstance(of_section, Mapping) else {}
        for entry in fields(kind):
            old = before.get(entry.name, json_ready(entry.default))
            if entry.metadata["reads"] and isinstance(old, str):
                old = version_now(old)
            new = json_ready(getattr(getattr(config, section), entry.name))
            if old != new:
                changes.append(Change(section, entry.name, old, new))
    return changes


def listed(changes: Iterable[Change]) -> list[Change]:
    """The changes that alter what is computed from here on."""
    return [change for change in changes if change.scope not in _SILENT]


_NAMES = {"batch_size": "batch size", "init_weights": "--init-weights"}
WAYS_ON = "the same, or --fresh-start"
WAYS_FROM_OTHERS = "the same (a run continues from its own weights), or --fresh-start"


def require_same_run(run: Path, step: int, changes: Iterable[Change]) -> None:
    """Raise CheckpointError where `changes` of a checkpoint's settings would make it another run."""
    for change in changes:
        if change.scope is Scope.RUN:
            of_network = change.section == "network"
            name = f"network {change.name}" if of_network else _NAMES.get(change.name, change.name)
            ways_on = WAYS_FROM_OTHERS if change.name == "init_weights" else WAYS_ON
            require_same(run, step, name, change.before, change.now, ways_on)


def require_same(
    run: Path, step: int, name: str, before: object, now: object, ways_on: str = WAYS_ON
) -> None:
    """Every rank finds the same: all have the same settings and checkpoint."""
    if before != now:
        raise CheckpointError(
            f"{run}: {name} was {before!r} at step {step}, is {now!r}; expected {ways_on}",
            found_by_all_ranks=True,
        )


def shown(value: object) -> str:
    """A value as printed."""
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return escaped(str(value)) if value != "" else "''"


# Asking for one of these lengths means that it counts, and not the steps that the run began with.
OTHER_LENGTHS = frozenset({"epochs", "generations"})


def kept_line(config: Config, kept: Config) -> list[str]:
    """A line about what presets and defaults would have otherwise than a run that continues, or none."""
    texts = [
        f"{change.name} {shown(change.now)} (not {shown(change.before)})"
        for change in listed(changed_settings(to_table(config), kept))
        if not (_is_auto(change.name, config) or (change.name == "lanes" and "lanes" in config.set_by_game))
    ]
    return [f"as in the checkpoint: {', '.join(texts)}"] if texts else []


def kept_settings(saved: Mapping[str, Any], saved_micro_batch_size: int, config: Config) -> Config:
    """`config` with the values of `saved`, a checkpoint's settings by section, but for what was requested.

    Presets and defaults change from version to version, and a run must not change with them. What was
    requested (Config.asked) stays, and is compared with the checkpoint afterwards. A field that the
    checkpoint's program did not have counts as that field's default. saved_micro_batch_size: in use when it
    was saved.
    """
    sections = {}
    for name, kind in SECTIONS.items():
        of_section = saved.get(name)
        before = of_section if isinstance(of_section, Mapping) else {}
        values = _kept_values(kind, before, config, saved_micro_batch_size)
        sections[name] = dataclasses.replace(getattr(config, name), **values)
    return dataclasses.replace(config, **sections)


def _kept_values(
    section: type, saved: Mapping[str, Any], config: Config, micro_batch_size: int
) -> dict[str, Any]:
    """The values that a section takes from the checkpoint, by field."""
    kinds = typing.get_type_hints(section)
    values: dict[str, Any] = {}
    for entry in fields(section):
        key = entry.name
        is_of_a_start = entry.metadata["scope"] in _OF_A_START
        # `auto` knows the checkpoint's precision, and a rate that is named is not scaled.
        is_chosen_elsewhere = (key == "precision" and config.training.precision == "auto") or (
            key == "lr_scaling" and "learning_rate" in config.asked
        )
        is_asked = key in config.asked and not _is_auto(key, config)
        if is_asked or is_of_a_start or is_chosen_elsewhere:
            continue
        value = saved.get(key, json_ready(entry.default))
        if key == "micro_batch_size":
            # Memory may have forced a smaller one than requested.
            values[key] = value if value in (0, AUTO) else micro_batch_size
        elif key == "steps" and config.asked & OTHER_LENGTHS:
            values[key] = 0
        else:
            values[key] = _checked(value, kinds[key], entry)
    return values


def _checked(value: object, kind: object, entry: dataclasses.Field[Any]) -> Any:  # noqa: ANN401 - as kind
    """A value of the checkpoint, which all ranks have alike, as the field's type.

    A Python file is not run because a checkpoint names it: only where this start's command line does so too.
    """
    key = f"checkpoint: {entry.name}"
    try:
        if entry.metadata["reads"] and isinstance(value, str) and (asked := class_of(value)):
            if (now := version_now(value)) == value and not asked.digest:
                flag = f"{flag_of(entry.name)} {shlex.quote(f'PATH/{asked.plain}')}"
                raise ConfigError(f"{key}: {quoted(value)}: is run only where you name it; expected {flag}")
            value = now
        return checked(key, value, kind, entry)
    except ConfigError as error:
        raise ConfigError(str(error), found_by_all_ranks=True) from error


def _is_auto(key: str, config: Config) -> bool:
    """True for lanes and budget where they are left open: a run keeps those that it began with."""
    return key in ("lanes", "simulations_per_round") and getattr(config.self_play, key) == 0
