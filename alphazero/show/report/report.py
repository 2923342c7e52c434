"""A report on one run or several: all that is shown, as plain data. It reads files and runs no network."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.base.files import complete_lines
from alphazero.base.text import reason
from alphazero.data.store.store import GameStore
from alphazero.run.directory import RunDirectory
from alphazero.run.validation_record import ValidationRecord, read_games, read_records
from alphazero.show.report.calibration import SearchValues, calibration_panels
from alphazero.show.report.figures import RunFigures
from alphazero.show.report.games import held_out_games, stored_games, wrong_positions
from alphazero.show.report.openings import opening_tree, search_values
from alphazero.show.report.overview import (
    Event,
    Standing,
    compared_settings,
    differing_settings,
    events_of,
    facts,
    read_config,
    read_starts,
    weights_files,
)
from alphazero.show.report.panel import Panel
from alphazero.show.report.panel_list import (
    EXACT_TRUTH,
    Rating,
    device_panels,
    learning_panels,
    rating_panel,
    self_play_panels,
    speed_panels,
)

VERSION = 1
RATINGS = "ratings.jsonl"
NO_GAMES = (
    "No games to show: the run has played none of its own, and no validation has recorded how the network "
    "sees held-out games."
)
NO_WRONG = "No validation has recorded the positions on which the network is most wrong."
NO_TREE = "No self-play games: openings are those of a run's own games."


@dataclass(frozen=True)
class ReadRun:
    """All that is read of a run."""

    run: RunDirectory
    figures: RunFigures
    config: dict[str, Any]
    standing: Standing
    records: list[ValidationRecord]
    ratings: list[Rating]
    search: SearchValues | None
    body: dict[str, Any]  # what of the report is the run's own
    events: list[Event]


@dataclass(frozen=True)
class Report:
    """What is shown. runs: names in order; body: the rest beside the panels."""

    panels: list[Panel]
    body: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, no NaN among them."""
        return {**self.body, "panels": [panel.to_json() for panel in self.panels]}


def build(paths: Sequence[Path], standings: Sequence[Standing]) -> Report:
    """Read the runs. standings: of each. Raises DataError where one has no figures."""
    names = _names(paths)
    runs = [_read(path, name, one) for path, name, one in zip(paths, names, standings, strict=True)]
    figures = [run.figures for run in runs]
    records = [run.records for run in runs]
    panels = [
        *learning_panels(figures),
        *calibration_panels(figures, records, [run.search for run in runs]),
        EXACT_TRUTH.of(figures),
        rating_panel(figures, [run.ratings for run in runs]),
        *self_play_panels(figures),
        *speed_panels(figures, [run.config for run in runs]),
        *device_panels(figures),
    ]
    body = {
        "version": VERSION,
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
        "runs": [run.body for run in runs],
        "compared": [list(row) for row in compared_settings([run.config for run in runs])],
    }
    return Report(panels, body)


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of the directories; the paths where two have the same."""
    names = [path.resolve().name for path in paths]
    counts = Counter(names)
    return [name if counts[name] == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def _read(path: Path, name: str, standing: Standing) -> ReadRun:
    run = RunDirectory(path)
    figures = RunFigures.read(run, name)
    if not figures.kinds:
        raise DataError(f"{run.metrics}: no figures to draw yet; expected a run that has logged steps")
    config, starts = read_config(run), read_starts(run)
    try:
        records, seen = read_records(run), read_games(run)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    store, fault = _store(run)
    events = events_of(figures, starts)
    game = str(config.get("network", {}).get("game", ""))
    games = stored_games(store) if store else held_out_games(seen) if seen else []
    wrong = wrong_positions(game, records[-1]) if records else []
    tree = opening_tree(store) if store else None
    body = {
        "name": name,
        "game": game,
        "facts": [list(row) for row in facts(run, figures, config, starts, standing)],
        "settings": [list(row) for row in differing_settings(config)],
        "weights": [list(row) for row in weights_files(run)],
        "events": [event.to_json(figures) for event in events],
        "games": games,
        "games_from": "search" if store else "network",
        "games_step": seen.step if seen and not store else None,
        "no_games": "" if games else fault or NO_GAMES,
        "wrong": wrong,
        "wrong_step": records[-1].step if records else None,
        "no_wrong": "" if wrong else NO_WRONG,
        "openings": tree,
        "no_openings": "" if tree else fault or NO_TREE,
    }
    search = search_values(store) if store else None
    return ReadRun(run, figures, config, standing, records, _ratings(run), search, body, events)


def _store(run: RunDirectory) -> tuple[GameStore | None, str]:
    """The run's own games; None and why where there are none to be read."""
    if not run.games.is_dir():
        return None, ""
    try:
        store = GameStore.open(run.games)
    except AlphaZeroError as error:
        return None, f"The games of this run cannot be read: {reason(error)}"
    return (store, "") if store.num_games else (None, "")


def _ratings(run: RunDirectory) -> list[Rating]:
    """What `alphazero rate --checkpoints` kept, by step, the newest rating of each."""
    found = {}
    for text in complete_lines(run.path / RATINGS):
        try:
            body = json.loads(text)
            low, high = (float(bound) for bound in body["elo_95"])
            found[int(body["step"])] = Rating(int(body["step"]), float(body["elo"]), low, high)
        except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
            continue
    return [found[step] for step in sorted(found)]
