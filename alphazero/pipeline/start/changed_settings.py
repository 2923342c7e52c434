"""What is not as it was when a run saved its checkpoint: told in a line each, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from alphazero.config import SECTIONS, Config
from alphazero.filter_settings import SampleFilters
from alphazero.settings import json_ready

# Of a start, not of what is computed: they may change from start to start and nobody needs to be told.
OF_A_START: Mapping[str, frozenset[str]] = {
    "data": frozenset({"data", "validation_data", "num_workers", "cache_dir", "verify_data"}),
    "training": frozenset(
        {"keep_checkpoints", "checkpoint_interval", "log_interval", "gradient_accumulation_steps"}
    ),
    "run": frozenset(
        {
            "run_name",
            "runs_dir",
            "tensorboard",
            "wandb",
            "wandb_project",
            "wandb_team",
            "wandb_group",
            "log_format",
            "quiet",
            "health_interval",
        }
    ),
}


@dataclass(frozen=True)
class Change:
    """One setting of [section], with its value in the checkpoint and its value now (as JSON has them)."""

    section: str
    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} {shown(self.before)} -> {shown(self.now)}"


def changed_settings(saved: Mapping[str, Any], config: Config) -> list[Change]:
    """Every setting that is not what the checkpoint's settings `saved` (by section) say, in their order.

    A field that the checkpoint's program did not have counts as that field's default.
    """
    changes = []
    for section, kind in SECTIONS.items():
        before = saved.get(section, {})
        for entry in fields(kind):
            old = before.get(entry.name, json_ready(entry.default))
            new = json_ready(getattr(getattr(config, section), entry.name))
            if old != new:
                changes.append(Change(section, entry.name, old, new))
    return changes


def changed_filters(saved: Mapping[str, Any], config: Config) -> list[str]:
    """'min_elo 1500 -> 1600' for each filter of the given games that is another one."""
    names = {entry.name for entry in fields(SampleFilters)}
    return [str(change) for change in changed_settings(saved, config) if change.name in names]


def told_changes(changes: list[Change]) -> list[str]:
    """A line for each change that alters what is computed from here on."""
    return [
        f"changed: {change}"
        for change in changes
        if change.name not in OF_A_START.get(change.section, frozenset())
    ]


def shown(value: object) -> str:
    """A value for people."""
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if value != "" else "''"
