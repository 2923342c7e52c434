"""A run in short: its network, length, machine, files, settings, and events such as starts and alarms."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alphazero.base.errors import CheckpointError
from alphazero.base.log import duration
from alphazero.base.section import MOST_STEPS
from alphazero.base.text import counted
from alphazero.run.checkpoint_files import read_json
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.run.overview import RunOverview, network_text
from alphazero.run.validation_record import Bins, ValidationRecord
from alphazero.settings.load import SECTIONS, Config, to_table
from alphazero.settings.sections import MOST_POSITIONS
from alphazero.show.report.panel import rounded

LONGEST_TEXT = 1000
SOFTWARE = ("alphazero", "torch", "deepspeed", "Python")


@dataclass(frozen=True)
class Start:
    """One start of a run. step: at which it started, None if not recorded. typed: the user's words.

    recorded: all that the run has of it.
    """

    time: str
    host: str
    step: int | None
    typed: tuple[str, ...]
    recorded: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadRun:
    """What is read of a run. search: the calibration of its values in the run's own games."""

    figures: RunFigures
    config: Mapping[str, Any]
    records: Sequence[ValidationRecord]
    ratings: Mapping[int, tuple[float, float, float]]  # by step the Elo and its 95 % interval
    overview: RunOverview
    starts: Sequence[Start] = ()
    search: Bins | None = None

    @property
    def game(self) -> str:
        """By its settings; '' where they cannot be read."""
        return str(self.config.get("network", {}).get("game", ""))

    @property
    def batch_size(self) -> int | None:
        """Positions of a step, None where the settings have none."""
        return whole_number(self.config.get("training", {}).get("batch_size"), MOST_POSITIONS)


def read_config(run: RunDirectory) -> dict[str, Any]:
    """The run's settings by section; {} where they cannot be read."""
    sections = _read_json(run.config)
    return {name: section for name, section in sections.items() if isinstance(section, dict)}


def read_starts(run: RunDirectory) -> list[Start]:
    """All starts in order."""
    starts = []
    for path in sorted(run.path.glob("started-*.json")):
        body = _read_json(path)
        typed, time = body.get("command"), _text(body.get("time")).replace("T", " ")
        words = tuple(map(str, typed if isinstance(typed, list) else ()))
        step = whole_number(body.get("step"), MOST_STEPS)
        starts.append(Start(time, _text(body.get("host")), step, words, body))
    return starts


def differing_settings(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Settings that differ from the defaults: name, value, default; those of games where any are played."""
    is_supervised = config.get("self_play", {}).get("mode") == "supervised"
    skipped = ("search", "self_play") if is_supervised else ()
    own = {section: values for section, values in config.items() if section not in skipped}
    defaults = to_table(Config())
    usual = {section: {key: defaults.get(section, {}).get(key) for key in own[section]} for section in own}
    return [(name, value, default) for name, (value, default) in compared_settings([own, usual])]


def _is_place(section: str, key: str) -> bool:
    """True for a setting that says where a run lies rather than what it is."""
    entry = getattr(SECTIONS.get(section), "__dataclass_fields__", {}).get(key)
    return entry is not None and bool(entry.metadata["is_place"])


def compared_settings(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Settings in which runs differ: name, and the value in each run ('' where it has none)."""
    names = dict.fromkeys(
        (section, key) for config in configs for section in config for key in config[section]
    )
    rows = []
    for section, key in names:
        values = [_value(config.get(section, {}).get(key)) for config in configs]
        if len(set(values)) > 1 and not _is_place(section, key):
            rows.append((f"{section}.{key}", values))
    return rows


def facts(run: ReadRun) -> list[tuple[str, str]]:
    """The run in short: names and values."""
    figures, training = run.figures, run.config.get("training", {})
    minutes = figures.of("speed").last("minutes")
    games = figures.of("self_play").columns.get("games")
    rows = [
        ("state", run.overview.state.value),
        ("game", run.game),
        ("network", network_text(run.config.get("network", {}))),
        ("steps", f"{figures.last_step:,}"),
        ("positions trained on", f"{figures.last_step * run.batch_size:,}" if run.batch_size else ""),
        ("games played", f"{int(games[games >= 0].sum()):,}" if games is not None else ""),
        ("wall time", duration(60 * minutes) if minutes is not None else ""),
        ("source", str(run.config.get("self_play", {}).get("mode", ""))),
        ("precision", str(training.get("precision", ""))),
    ]
    if run.starts:
        count = f", {len(run.starts)} starts" if len(run.starts) > 1 else ""
        rows += [("started", run.starts[0].time + count), ("host", run.starts[-1].host)]
    return [(name, value[:LONGEST_TEXT]) for name, value in rows if value]


def origin(start: Start) -> list[tuple[str, str]]:
    """What made the run: names and values."""
    recorded, packages = start.recorded, start.recorded.get("packages")
    versions = {**(packages if isinstance(packages, dict) else {}), "Python": recorded.get("python")}
    rows = [
        ("command", shlex.join(start.typed)),
        ("commit", _text(recorded.get("commit"))[:12]),
        ("software", ", ".join(f"{name} {_text(versions.get(name))}" for name in SOFTWARE)),
        ("platform", _text(recorded.get("platform"))),
    ]
    return [(name, value[:LONGEST_TEXT]) for name, value in rows if value]


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:LONGEST_TEXT] if text else '""'


def whole_number(value: object, most: int) -> int | None:
    """A whole number that a run can have; None for anything else in its files."""
    return value if type(value) is int and 0 <= value <= most else None


def _text(value: object) -> str:
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def _read_json(path: Path) -> dict[str, Any]:
    """An object of JSON; {} where it cannot be read, as the other panels do not need it."""
    try:
        return read_json(path)
    except CheckpointError:
        return {}


MOST_OF_A_KIND = 200  # events that are listed


def events_of(figures: RunFigures, starts: Sequence[Start]) -> list[dict[str, Any]]:
    """Restarts, skipped steps and alarms. step: None where it is not known; then the event is not drawn."""
    events: list[tuple[str, int | None, str, str]] = []
    for start in starts[1:]:
        where, when = start.host or "an unknown host", start.time or "an unknown time"
        events.append(("restart", start.step, f"started again on {where} at {when}", ""))
    for first, last in _stretches(figures)[:MOST_OF_A_KIND]:
        steps = counted(int(last - first) + 1, "step")
        events.append(("skipped", int(first), f"{steps} skipped: not finite", ""))
    for alarm in figures.alarms[-MOST_OF_A_KIND:]:
        text = f"{alarm.cause}: {alarm.text}" if alarm.cause else alarm.text
        events.append(("alarm", alarm.step, text, alarm.advice))
    return [
        {
            "kind": kind,
            "step": step,
            "minutes": None if step is None else rounded(float(figures.minutes(np.array([step]))[0])),
            "text": text,
            "advice": advice,
        }
        for kind, step, text, advice in events
    ]


def _stretches(figures: RunFigures) -> list[tuple[float, float]]:
    """First and last of each run of skipped steps."""
    steps = figures.skipped_steps
    if not len(steps):
        return []
    breaks = np.flatnonzero(np.diff(steps) > 1)
    first = steps[np.concatenate([[0], breaks + 1])]
    last = steps[np.concatenate([breaks, [len(steps) - 1]])]
    return list(zip(first.tolist(), last.tolist(), strict=True))
