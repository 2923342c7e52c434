"""A run in short: its network, length, machine, files, settings, and events such as starts and alarms."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
from alphazero.settings.load import SECTIONS, Config, to_table
from alphazero.settings.sections import MOST_POSITIONS
from alphazero.show.report.panel import rounded

LONGEST_TEXT = 1000
NEWEST_WEIGHTS = 12
SOFTWARE = ("alphazero", "torch", "deepspeed", "Python")


@dataclass(frozen=True)
class Start:
    """One start of a run. step: at which it started, None if not recorded. typed: the user's words."""

    time: str
    host: str
    step: int | None
    typed: tuple[str, ...]
    command: str
    commit: str
    python: str
    platform: str
    packages: Mapping[str, str]


def read_config(run: RunDirectory) -> dict[str, Any]:
    """The run's settings by section; {} where they cannot be read."""
    found = _read_json(run.config)
    return {name: section for name, section in found.items() if isinstance(section, dict)}


def read_starts(run: RunDirectory) -> list[Start]:
    """All starts in order."""
    starts = []
    for path in sorted(run.path.glob("started-*.json")):
        body = _read_json(path)
        packages = body.get("packages")
        argv, typed, step = (body.get(name) for name in ("argv", "command", "step"))
        words = typed if isinstance(typed, list) else []
        starts.append(
            Start(
                time=_moment(body.get("time")),
                host=_text(body.get("host")),
                step=whole_number(step, MOST_STEPS),
                typed=tuple(str(word) for word in words),
                command=_text(shlex.join(map(str, words or (argv if isinstance(argv, list) else [])))),
                commit=_text(body.get("commit"))[:12],
                python=_text(body.get("python")),
                platform=_text(body.get("platform")),
                packages={str(name): _text(version) for name, version in packages.items()}
                if isinstance(packages, dict)
                else {},
            )
        )
    return starts


def differing_settings(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Settings that differ from the defaults: name, value, default; those of games where any are played."""
    defaults = to_table(Config())
    is_supervised = config.get("self_play", {}).get("mode") == "supervised"
    found = []
    for section, values in config.items():
        if is_supervised and section in ("search", "self_play"):
            continue
        for key, value in values.items():
            default = defaults.get(section, {}).get(key) if isinstance(defaults.get(section), dict) else None
            if value != default and not _is_place(section, key):
                found.append((f"{section}.{key}", _value(value), _value(default)))
    return found


def _is_place(section: str, key: str) -> bool:
    """True for a setting that says where a run lies rather than what it is."""
    entry = getattr(SECTIONS.get(section), "__dataclass_fields__", {}).get(key)
    return entry is not None and bool(entry.metadata["is_place"])


def compared_settings(configs: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
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


def facts(
    figures: RunFigures, config: Mapping[str, Any], starts: list[Start], overview: RunOverview
) -> list[tuple[str, str]]:
    """The run in short: names and values."""
    network, training = config.get("network", {}), config.get("training", {})
    steps = f"{figures.last_step:,}"
    if overview.num_steps >= 0:
        steps += f" of {overview.num_steps:,}"
    minutes = figures.of("speed").last("minutes")
    batch_size = whole_number(training.get("batch_size"), MOST_POSITIONS)
    games = figures.of("self_play").columns.get("games")
    rows = [
        ("state", overview.state.value),
        ("game", str(network.get("game", ""))),
        ("network", network_text(network)),
        ("steps", steps),
        ("positions trained on", "" if batch_size is None else f"{figures.last_step * batch_size:,}"),
        ("games played", f"{int(games[games >= 0].sum()):,}" if games is not None else ""),
        ("wall time", duration(60 * minutes) if minutes is not None else ""),
        ("source", str(config.get("self_play", {}).get("mode", ""))),
        ("precision", str(training.get("precision", ""))),
    ]
    if starts:
        rows += [
            ("started", starts[0].time + (f", {len(starts)} starts" if len(starts) > 1 else "")),
            ("host", starts[-1].host),
        ]
    if skipped := len(figures.skipped_steps):
        rows.append(("steps skipped", f"{skipped:,}"))
    if figures.num_damaged:
        rows.append(("damaged lines skipped", f"{figures.num_damaged:,}"))
    return [(name, value[:LONGEST_TEXT]) for name, value in rows if value]


def origin(starts: list[Start]) -> list[tuple[str, str]]:
    """What made the run: names and values, of its newest start."""
    if not starts:
        return []
    newest = starts[-1]
    versions = {**newest.packages, "Python": newest.python}
    rows = [
        ("command", newest.command),
        ("commit", newest.commit),
        ("software", ", ".join(f"{name} {versions[name]}" for name in SOFTWARE if versions.get(name))),
        ("platform", newest.platform),
    ]
    return [(name, value) for name, value in rows if value]


def moment(time: datetime) -> str:
    """'2026-11-25 10:25:13 UTC+1'; without a zone where it has none."""
    offset = time.utcoffset()
    if offset is None:
        return f"{time:%Y-%m-%d %H:%M:%S}"
    sign, (hours, minutes) = "-" if offset < timedelta(0) else "+", divmod(abs(offset).seconds // 60, 60)
    shown = f"{sign}{hours}" + (f":{minutes:02}" if minutes else "") if offset else ""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC{shown}"


def _moment(value: object) -> str:
    """A time of a run's files; the text as it is where it is none."""
    text = _text(value)
    try:
        return moment(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z"))
    except ValueError:
        return text


def weights_files(run: RunDirectory) -> list[tuple[str, str]]:
    """The run's files of weights, the newest one first, with their sizes."""
    found = []
    for path in run.path.glob("*.pt"):
        try:
            status = path.stat()
        except OSError:  # replaced by a running job
            continue
        found.append((status.st_mtime, path.name, f"{status.st_size / 1e6:.1f} MB"))
    return [(name, size) for _, name, size in sorted(found, reverse=True)[:NEWEST_WEIGHTS]]


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
    found: list[tuple[str, int | None, str, str]] = []
    for start in starts[1:]:
        where, when = start.host or "an unknown host", start.time or "an unknown time"
        found.append(("restart", start.step, f"started again on {where} at {when}", ""))
    for first, last in _stretches(figures)[:MOST_OF_A_KIND]:
        steps = counted(int(last - first) + 1, "step")
        found.append(("skipped", int(first), f"{steps} skipped: not finite", ""))
    for alarm in figures.alarms[-MOST_OF_A_KIND:]:
        text = f"{alarm.cause}: {alarm.text}" if alarm.cause else alarm.text
        found.append(("alarm", alarm.step, text, alarm.advice))
    return [
        {
            "kind": kind,
            "step": step,
            "minutes": None if step is None else rounded(float(figures.minutes(np.array([step]))[0])),
            "text": text,
            "advice": advice,
        }
        for kind, step, text, advice in found
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
