"""Panels of what validations recorded: is the value to be trusted, and in which phase of the game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alphazero.run.validation_record import Bins, ValidationRecord
from alphazero.show.report.figures import RunFigures
from alphazero.show.report.panel import Bars, Best, Curve, Dots, Kind, Panel, curve

GROUP = "What the network knows"
NO_RECORD = (
    "No validation of this run was recorded: it has not come that far, or it was made before validations "
    "recorded calibration and phases, or it has no held-out positions (--data, --validation-data)."
)
TRUTHS = {"results": "held-out games", "exact": "exact truth"}


@dataclass(frozen=True)
class SearchValues:
    """Calibration of the search's own values in self-play games: expected score and chance of a draw."""

    score: Bins
    draw: Bins


def calibration_panels(
    runs: Sequence[RunFigures],
    records: Sequence[Sequence[ValidationRecord]],
    searches: Sequence[SearchValues | None],
) -> list[Panel]:
    """Reliability of score and draw, calibration error over the run, accuracy by phase."""
    return [
        _reliability(records, searches),
        _calibration_error(runs, records),
        _phases(records),
        _phases_over_run(runs, records),
    ]


def _reliability(
    records: Sequence[Sequence[ValidationRecord]], searches: Sequence[SearchValues | None]
) -> Panel:
    marks: list[Dots] = []
    for number, (recorded, search) in enumerate(zip(records, searches, strict=True)):
        if recorded:
            newest = recorded[-1]
            truth = TRUTHS.get(newest.truth, newest.truth)
            marks += _dots(f"network, score ({truth})", number, 0, newest.score)
            if len(records) == 1:  # else there would be too many
                marks += _dots(f"network, draw ({truth})", number, 1, newest.draw)
        if search is not None:
            marks += _dots("search in self-play games, score", number, 2, search.score)
    return Panel(
        "reliability",
        GROUP,
        "Calibration of the value",
        "share",
        tuple(marks),
        NO_RECORD,
        kind=Kind.RELIABILITY,
        note="Where 70 % is expected, the side to move should score 70 %. Below the diagonal on the right, "
        "above it on the left: overconfident. The larger the dot, the more positions.",
        is_share=True,
    )


def _dots(label: str, run: int, place: int, bins: Bins) -> list[Dots]:
    filled = [index for index, count in enumerate(bins.count) if count]
    if not filled:
        return []
    predicted, actual, count = (
        [row[index] for index in filled] for row in (bins.predicted, bins.actual, bins.count)
    )
    error = f"{label}: off by {bins.error:.1%}"
    return [Dots(error, run, place, predicted, actual, [int(one) for one in count])]


def _calibration_error(runs: Sequence[RunFigures], records: Sequence[Sequence[ValidationRecord]]) -> Panel:
    curves: list[Curve] = []
    for number, (run, recorded) in enumerate(zip(runs, records, strict=True)):
        step = np.array([float(record.step) for record in recorded])
        chosen = ("score", "draw") if len(runs) == 1 else ("score",)
        for place, label in enumerate(chosen):
            value = np.array([getattr(record, label).error for record in recorded])
            found = curve(label, number, place, run, (step, value), Best.LOWEST)
            curves += [found] if found else []
    return Panel(
        "calibration_error",
        GROUP,
        "Calibration error over the run",
        "share",
        tuple(curves),
        NO_RECORD,
        note="The mean distance from the diagonal, by positions.",
        is_share=True,
    )


def _phases(records: Sequence[Sequence[ValidationRecord]]) -> Panel:
    marks = []
    for number, recorded in enumerate(records):
        if recorded and recorded[-1].phases:
            phases = recorded[-1].phases
            marks.append(
                Bars(
                    "right moves",
                    number,
                    0,
                    [phase.name for phase in phases],
                    [phase.right_moves for phase in phases],
                    [phase.positions for phase in phases],
                )
            )
    return Panel(
        "phases",
        GROUP,
        "Right moves by phase of the game",
        "share",
        tuple(marks),
        NO_RECORD,
        kind=Kind.BARS,
        note="At the newest validation. Chess: opening with 12 or more of the 14 knights, bishops, rooks and "
        "queens, endgame with fewer than 7; other games: thirds of the board filled.",
        is_share=True,
    )


def _phases_over_run(runs: Sequence[RunFigures], records: Sequence[Sequence[ValidationRecord]]) -> Panel:
    curves: list[Curve] = []
    for number, (run, recorded) in enumerate(zip(runs, records, strict=True)):
        names = dict.fromkeys(phase.name for record in recorded for phase in record.phases)
        for place, name in enumerate(names):
            points = [
                (float(record.step), phase.value_mse)
                for record in recorded
                for phase in record.phases
                if phase.name == name
            ]
            step, value = np.array(points).T
            found = curve(name, number, place, run, (step, value), Best.LOWEST)
            curves += [found] if found else []
    return Panel(
        "phase_value_error",
        GROUP,
        "Value error by phase",
        "(W - L - result) squared",
        tuple(curves),
        NO_RECORD,
        note="Openings are hard to judge, endgames are nearly decided.",
    )
