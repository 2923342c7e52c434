"""Panels of what validations recorded: calibration of the value, and figures by phase of the game."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alphazero.run.validation_record import Bins
from alphazero.show.report.overview import ReadRun
from alphazero.show.report.panel import Mark, Panel, curve, numbers

GROUP = "What the network knows"
NO_RECORD = (
    "No validation of this run was recorded: it has not come that far, or it was made before validations "
    "recorded calibration and phases, or it has no held-out positions (--data, --validation-data)."
)
TRUTHS = {"results": "held-out games", "exact": "exact truth"}


def calibration_panels(runs: Sequence[ReadRun]) -> list[Panel]:
    """Reliability of score and draw, calibration error over the run, figures by phase."""
    return [_reliability(runs), _calibration_error(runs), _phases(runs), _phases_over_run(runs)]


def _reliability(runs: Sequence[ReadRun]) -> Panel:
    marks: list[Mark] = []
    for number, run in enumerate(runs):
        if run.records:
            newest = run.records[-1]
            truth = TRUTHS.get(newest.truth, newest.truth)
            marks += _diagram(f"network, score ({truth})", number, 0, newest.score)
            if len(runs) == 1:  # else there would be too many
                marks += _diagram(f"network, draw ({truth})", number, 1, newest.draw)
        if run.search is not None:
            marks += _diagram("search in self-play games, score", number, 2, run.search)
    note = (
        "Where 70 % is expected, the side to move should score 70 %. Below the diagonal on the right, "
        "above it on the left: overconfident. The larger the dot, the more positions."
    )
    title = "Calibration of the value"
    return Panel("reliability", GROUP, title, "share", marks, NO_RECORD, "reliability", note, share=True)


def _diagram(label: str, run: int, slot: int, bins: Bins) -> list[Mark]:
    filled = [index for index, count in enumerate(bins.count) if count]
    if not filled:
        return []
    return [
        {
            "label": f"{label}: off by {bins.error:.1%}",
            "run": run,
            "place": slot,
            "predicted": numbers([bins.predicted[index] for index in filled]),
            "actual": numbers([bins.actual[index] for index in filled]),
            "count": [int(bins.count[index]) for index in filled],
        }
    ]


def _calibration_error(runs: Sequence[ReadRun]) -> Panel:
    marks: list[Mark] = []
    for number, run in enumerate(runs):
        step = np.array([float(record.step) for record in run.records])
        for slot, label in enumerate(("score", "draw") if len(runs) == 1 else ("score",)):
            value = np.array([getattr(record, label).error for record in run.records])
            marks += curve(label, number, slot, run.figures, (step, value), "lowest", is_share=True)
    note = "The mean distance from the diagonal, by positions."
    title = "Calibration error over the run"
    return Panel("calibration_error", GROUP, title, "share", marks, NO_RECORD, note=note, share=True)


def _phases(runs: Sequence[ReadRun]) -> Panel:
    marks = []
    for number, run in enumerate(runs):
        if run.records and (phases := run.records[-1].phases):
            marks.append(
                {
                    "label": "right moves",
                    "run": number,
                    "place": 0,
                    "categories": [phase.name for phase in phases],
                    "values": numbers([phase.right_moves for phase in phases]),
                    "counts": [phase.positions for phase in phases],
                }
            )
    note = (
        "At the newest validation. Chess: opening with 12 or more of the 14 knights, bishops, rooks and "
        "queens, endgame with fewer than 7; other games: thirds of the board filled."
    )
    title = "Right moves by phase of the game"
    return Panel("phases", GROUP, title, "share", marks, NO_RECORD, "bars", note, share=True)


def _phases_over_run(runs: Sequence[ReadRun]) -> Panel:
    marks: list[Mark] = []
    for number, run in enumerate(runs):
        names = dict.fromkeys(phase.name for record in run.records for phase in record.phases)
        for slot, name in enumerate(names):
            points = [
                (float(record.step), phase.value_mse)
                for record in run.records
                for phase in record.phases
                if phase.name == name
            ]
            step, value = np.array(points).T
            marks += curve(name, number, slot, run.figures, (step, value), "lowest")
    note = "Openings are hard to judge, endgames are nearly decided."
    title, unit = "Value error by phase", "(W - L - result) squared"
    return Panel("phase_value_error", GROUP, title, unit, marks, NO_RECORD, note=note)
