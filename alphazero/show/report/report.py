"""The report on one run or several as plain data, from the files of the runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.base.files import complete_lines
from alphazero.base.section import MOST_STEPS
from alphazero.base.text import printable, reason
from alphazero.data.store.store import GameStore
from alphazero.games.outside.names import is_outside
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.run.overview import overview_of
from alphazero.run.validation_record import Bins, read_games, read_records
from alphazero.show.report.games import held_out_games, stored_games, wrong_positions
from alphazero.show.report.openings import opening_tree, search_values
from alphazero.show.report.overview import (
    compared_settings,
    differing_settings,
    events_of,
    facts,
    moment,
    origin,
    read_config,
    read_starts,
    weights_files,
)
from alphazero.show.report.panel import Panel
from alphazero.show.report.panel_list import all_panels
from alphazero.show.report.result import JudgedRun, result_of, results_of

VERSION = 1
RATINGS = "ratings.jsonl"
LARGEST_ELO = 1e6
NO_GAMES = (
    "No games to show: the run has played none, and no validation has recorded the network's evaluations of "
    "held-out games."
)
NO_WRONG = "No validation has recorded the positions on which the network is most wrong."
NO_TREE = "No self-play games: openings are those of a run's own games."


@dataclass(frozen=True)
class ReadRun:
    """What is read of a run. body: the part of the report that concerns it alone."""

    judged: JudgedRun
    search: Bins | None
    body: dict[str, Any]


@dataclass(frozen=True)
class RunReport:
    """What is shown. body: all but the panels."""

    panels: list[Panel]
    body: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, no NaN among them."""
        return {**self.body, "panels": [panel.to_json() for panel in self.panels]}


def build(paths: Sequence[Path]) -> RunReport:
    """Read the runs. Raises DataError where one has no figures."""
    runs = [_read(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    panels = all_panels(
        [run.judged.figures for run in runs],
        [run.judged.config for run in runs],
        [run.judged.records for run in runs],
        [run.search for run in runs],
        [run.judged.ratings for run in runs],
    )
    body = {
        "version": VERSION,
        "made": moment(datetime.now().astimezone()),
        "runs": [run.body for run in runs],
        "results": results_of([run.judged for run in runs]) if len(runs) > 1 else None,
        "compared": [list(row) for row in compared_settings([dict(run.judged.config) for run in runs])],
    }
    return RunReport(panels, body)


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of the directories; the paths where two have the same."""
    names = [printable(path.resolve().name) for path in paths]
    counts = Counter(names)
    return [name if counts[name] == 1 else printable(path) for name, path in zip(names, paths, strict=True)]


def _read(path: Path, name: str) -> ReadRun:
    run = RunDirectory(path)
    figures = RunFigures.read(run, name)
    if not figures.kinds:
        raise DataError(f"{run.metrics}: no figures to draw yet; expected a run that has logged steps")
    config, starts = read_config(run), read_starts(run)
    try:
        records, seen, overview = read_records(run), read_games(run), overview_of(path)
        ratings = _ratings(run)
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    store, fault = _store(run)
    game = str(config.get("network", {}).get("game", ""))
    games = stored_games(store) if store else held_out_games(seen) if seen else []
    wrong = wrong_positions(game, records[-1]) if records else []
    tree = opening_tree(store) if store else None
    judged = JudgedRun(figures, config, records, ratings, overview, starts)
    body = {
        "name": name,
        "game": game,
        "result": result_of(judged),
        "facts": [list(row) for row in facts(figures, config, starts, overview)],
        "origin": [list(row) for row in origin(starts)],
        "settings": [list(row) for row in differing_settings(config)],
        "weights": [list(row) for row in weights_files(run)],
        "events": events_of(figures, starts),
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
    return ReadRun(judged, search, body)


def _store(run: RunDirectory) -> tuple[GameStore | None, str]:
    """The run's own games; None and why where there are none to be read."""
    if not run.games.is_dir():
        return None, ""
    try:
        store = GameStore.open(run.games)
        game = store.manifest.game_now
    except AlphaZeroError as error:
        return None, f"The games of this run cannot be read: {reason(error)}"
    if not store.num_games:
        return None, ""
    return store, f"Boards of {game} are not drawn; the openings name its moves." if is_outside(game) else ""


def _ratings(run: RunDirectory) -> dict[int, tuple[float, float, float]]:
    """By step the newest Elo of `alphazero rate --checkpoints`, and its interval. Raises OSError.

    A line that no rating wrote, or with numbers that no rating has, is passed over.
    """
    found = {}
    for text in complete_lines(run.path / RATINGS):
        try:
            body = json.loads(text)
            low, high = (float(bound) for bound in body["elo_95"])
            step, elo = int(body["step"]), float(body["elo"])
        except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
            continue
        if 0 <= step <= MOST_STEPS and all(abs(value) <= LARGEST_ELO for value in (elo, low, high)):
            found[step] = elo, low, high
    return found
