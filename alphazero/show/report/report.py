"""The report on one run or several as plain data, from the files of the runs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alphazero.base.errors import DataError
from alphazero.base.files import complete_lines, resolved
from alphazero.base.section import MOST_STEPS
from alphazero.base.text import printable, reason
from alphazero.data.store.store import GameStore
from alphazero.games.registry import known_game, make_line
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.run.overview import overview_of
from alphazero.run.validation_record import Bins, read_games, read_records
from alphazero.show.report.games import DAMAGED, held_out_games, stored_games, wrong_positions
from alphazero.show.report.openings import opening_tree, search_values
from alphazero.show.report.overview import (
    ReadRun,
    compared_settings,
    differing_settings,
    events_of,
    facts,
    origin,
    read_config,
    read_starts,
)
from alphazero.show.report.panel import Panel
from alphazero.show.report.panel_list import all_panels
from alphazero.show.report.result import result_of, results_of

VERSION = 1
RATINGS = "ratings.jsonl"
LARGEST_ELO = 1e6
NO_GAMES = (
    "No games to show: the run has played none, and no validation has recorded the network's evaluations of "
    "held-out games."
)
NO_WRONG = "No validation has recorded positions on which the network is wrong, or their rules are missing."
NO_TREE = "No self-play games: openings are those of a run's own games."


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
    read = [_read(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    runs = [run for run, _ in read]
    body = {
        "version": VERSION,
        "made": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "runs": [body for _, body in read],
        "results": results_of(runs) if len(runs) > 1 else None,
        "compared": [list(row) for row in compared_settings([dict(run.config) for run in runs])],
    }
    return RunReport(all_panels(runs), body)


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of the directories; the paths where two have the same."""
    names = [printable(resolved(path).name) for path in paths]
    counts = Counter(names)
    return [name if counts[name] == 1 else printable(path) for name, path in zip(names, paths, strict=True)]


def _read(path: Path, name: str) -> tuple[ReadRun, dict[str, Any]]:
    """A run, and the part of the report that concerns it alone."""
    run = RunDirectory(path)
    figures = RunFigures.read(run, name)
    if not figures.kinds:
        raise DataError(f"{run.metrics}: no figures to draw yet; expected a run that has logged steps")
    config, starts, own = read_config(run), read_starts(run), _own_games(run)
    try:
        records, seen = read_records(run), read_games(run)
        read = ReadRun(figures, config, records, _ratings(run), overview_of(path), starts, own.search)
    except OSError as error:
        raise DataError(f"{error.filename or path}: cannot be read: {error.strerror}") from error
    games = own.games or (held_out_games(seen) if seen else [])
    wrong = wrong_positions(read.game, records[-1]) if records else []
    return read, {
        "name": name,
        "game": read.game,
        "result": result_of(read),
        "facts": [list(row) for row in facts(read)],
        "origin": [list(row) for row in origin(starts[-1])] if starts else [],
        "settings": [list(row) for row in differing_settings(config)],
        "events": events_of(figures, starts),
        "games": games,
        "games_from": "search" if own.games else "network",
        "games_step": None if own.games or seen is None else seen.step,
        "no_games": "" if games else own.fault or NO_GAMES,
        "wrong": wrong,
        "wrong_step": records[-1].step if records else None,
        "no_wrong": "" if wrong else NO_WRONG,
        "openings": own.openings,
        "no_openings": "" if own.openings else own.fault or NO_TREE,
    }


@dataclass(frozen=True)
class _OwnGames:
    """What a run's own games show. fault: why there are none."""

    games: Sequence[dict[str, Any]] = ()
    openings: dict[str, Any] | None = None
    search: Bins | None = None
    fault: str = ""


def _own_games(run: RunDirectory) -> _OwnGames:
    if not run.games.is_dir():
        return _OwnGames()
    try:
        store = GameStore.open(run.games)
        make_line(known_game(store.manifest.game))  # its rules may be missing
        if not store.num_games:
            return _OwnGames()
        return _OwnGames(stored_games(store), opening_tree(store), search_values(store))
    except DAMAGED as error:
        return _OwnGames(fault=f"The games of this run cannot be replayed: {reason(error)}")


def _ratings(run: RunDirectory) -> dict[int, tuple[float, float, float]]:
    """By step the newest Elo of `alphazero rate --checkpoints`, and its interval. Raises OSError.

    A line that no rating wrote, or with numbers that no rating has, is passed over.
    """
    ratings = {}
    for text in complete_lines(run.path / RATINGS):
        try:
            body = json.loads(text)
            low, high = (float(bound) for bound in body["elo_95"])
            step, elo = int(body["step"]), float(body["elo"])
        except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
            continue
        if 0 <= step <= MOST_STEPS and all(abs(value) <= LARGEST_ELO for value in (elo, low, high)):
            ratings[step] = elo, low, high
    return ratings
