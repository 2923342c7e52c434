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
from alphazero.games.registry import known_game, make_line
from alphazero.run.directory import RunDirectory
from alphazero.run.figures import RunFigures
from alphazero.run.overview import overview_of
from alphazero.run.validation_record import Bins, read_games, read_records
from alphazero.show.report.games import (
    DAMAGED,
    held_out_games,
    moves_alone,
    stored_games,
    wrong_positions,
)
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
    no_rules = _why_no_rules(store.manifest.game if store else game)
    own = _own_games(store, no_rules) if store else _OwnGames(held_out_games(seen) if seen else [], fault)
    wrong = wrong_positions(game, records[-1]) if records else []
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
        "games": own.games,
        "games_from": "search" if store else "network",
        "games_step": seen.step if seen and not store else None,
        "no_games": "" if own.games else own.fault or no_rules or NO_GAMES,
        "no_boards": no_rules if own.games else "",
        "wrong": wrong,
        "wrong_step": records[-1].step if records else None,
        "no_wrong": "" if wrong else (records and no_rules) or NO_WRONG,
        "openings": own.openings,
        "no_openings": "" if own.openings else own.fault or no_rules or NO_TREE,
    }
    return ReadRun(judged, own.search, body)


def _store(run: RunDirectory) -> tuple[GameStore | None, str]:
    """The run's own games; None and why where there are none to be read."""
    if not run.games.is_dir():
        return None, ""
    try:
        store = GameStore.open(run.games)
        if not is_outside(store.manifest.game):
            known_game(store.manifest.game)
    except AlphaZeroError as error:
        return None, f"The games of this run cannot be read: {reason(error)}"
    return store if store.num_games else None, ""


def _why_no_rules(game: str) -> str:
    """Why games outside the core cannot be replayed; "" where they can, and for games of the core."""
    if not is_outside(game):
        return ""
    try:
        make_line(known_game(game))
    except AlphaZeroError as error:
        return f"Boards are not drawn and moves are numbers: {reason(error)}"
    return ""


@dataclass(frozen=True)
class _OwnGames:
    """What a run's own games show. fault: why something is missing."""

    games: list[dict[str, Any]]
    fault: str = ""
    openings: dict[str, Any] | None = None
    search: Bins | None = None


def _own_games(store: GameStore, no_rules: str) -> _OwnGames:
    if no_rules:
        return _OwnGames(moves_alone(store))
    games, fault = stored_games(store)
    try:
        return _OwnGames(games, fault, opening_tree(store), search_values(store))
    except DAMAGED as error:
        if not is_outside(store.manifest.game):
            raise
        return _OwnGames(games, f"The games of this run cannot be replayed: {reason(error)}")


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
