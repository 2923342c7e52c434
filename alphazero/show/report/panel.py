"""What is drawn: panels and their marks (curves, reliability diagrams, bars), plain values as JSON has them.

Most panels are curves of figures by name: assets/panels.toml lists them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from alphazero.base.section import read_toml
from alphazero.run.figures import Column, RunFigures

TABLE = Path(__file__).with_name("assets") / "panels.toml"
OPTIONAL_KEYS = ("empty", "note", "log", "share", "from_zero")
# Points of a curve: about as many as a panel is wide, which keeps the page of a long run small.
MOST_POINTS = 600
DIGITS = 5
FEWEST_SMOOTHED = 40  # points of a noisy curve that has a mean drawn over it

# label; run: its number; place: of the figure in the panel; and by the panel's kind
# curves, shares: step, minutes, value; low, high: the extremes of what a point stands for, where a curve was
#   thinned or has an interval, else empty; mean: drawn over a noisy curve, else empty; last: the newest value
#   as text; best: step, minutes, value and text, or None
# reliability: predicted, actual, count
# bars: categories, values, counts
Mark: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One picture. group: its section of the page. empty: shown instead where there are no marks.

    kind: curves, shares (curves that add up to 1, one upon the other), reliability or bars. note: a sentence
    under the title. log, share, from_zero: as in panels.toml.
    """

    name: str
    group: str
    title: str
    unit: str
    marks: list[Mark]
    empty: str = ""
    kind: str = "curves"
    note: str = ""
    log: bool = False
    share: bool = False
    from_zero: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values; empty only without marks."""
        return vars(self) | {"empty": "" if self.marks else self.empty}


def table_panels(group: str, runs: Sequence[RunFigures]) -> list[Panel]:
    """The panels of a group in assets/panels.toml, with the curves of all runs."""
    panels = []
    for entry in _table():
        if entry["group"] != group:
            continue
        figures = entry["figures"]
        if len(runs) > 1 or not any(len(runs[0].of(row["kind"]).known(row["name"])[0]) for row in figures):
            figures = entry.get("compared", figures)
        marks: list[Mark] = []
        for number, run in enumerate(runs):
            for slot, figure in enumerate(figures):
                known = run.of(figure["kind"]).known(figure["name"])
                is_noisy = figure.get("noisy", False)
                marks += curve(
                    figure["label"],
                    number,
                    slot,
                    run,
                    known,
                    figure.get("best", ""),
                    is_noisy=is_noisy,
                    is_share=entry.get("share", False),
                )
        if not entry.get("occasional") or any(any(mark["value"]) for mark in marks):
            others = {key: entry[key] for key in OPTIONAL_KEYS if key in entry}
            panels.append(Panel(entry["name"], group, entry["title"], entry["unit"], marks, **others))
    return panels


@cache
def _table() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = read_toml(TABLE).table["panel"]
    return entries


def curve(
    label: str,
    run: int,
    slot: int,
    figures: RunFigures,
    columns: tuple[Column, Column],
    best: str = "",
    *,
    is_noisy: bool = False,
    is_share: bool = False,
) -> list[Mark]:
    """Steps and values as a thinned curve, its 'lowest' or 'highest' value marked; [] without any."""
    step, value = columns
    if not len(step):
        return []
    marked = None
    if best:
        index = int(value.argmin() if best == "lowest" else value.argmax())
        at = float(figures.minutes(step[index : index + 1])[0])
        words = figure_text(float(value[index]), is_share=is_share)
        marked = {
            "step": int(step[index]),
            "minutes": rounded(at),
            "value": rounded(float(value[index])),
            "text": f"best {words} at step {int(step[index]):,}",
        }
    thinned = thin(step, value)
    mean = smoothed(thinned[1]) if is_noisy and len(thinned[1]) >= FEWEST_SMOOTHED else np.zeros(0)
    mark = curve_mark(label, run, slot, thinned[0], figures.minutes(thinned[0]), *thinned[1:])
    last = figure_text(float((mean if len(mean) else thinned[1])[-1]), is_share=is_share)
    return [mark | {"best": marked, "mean": numbers(mean), "last": last}]


def curve_mark(
    label: str,
    run: int,
    slot: int,
    step: Column,
    minutes: Column,
    value: Column,
    low: npt.ArrayLike = (),
    high: npt.ArrayLike = (),
) -> Mark:
    """A curve from its columns as they are."""
    columns = {"minutes": minutes, "value": value, "low": low, "high": high}
    return {
        "label": label,
        "run": run,
        "place": slot,
        "step": [int(number) for number in step],
        **{name: numbers(column) for name, column in columns.items()},
        "best": None,
        "mean": [],
        "last": figure_text(float(value[-1])),
    }


def thin(step: Column, value: Column) -> tuple[Column, Column, Column, Column]:
    """Steps, means, minima and maxima of stretches of a curve; the curve itself where it is short.

    No minimum or maximum is lost: each lies in the stretch that stands for it.
    """
    if len(step) <= MOST_POINTS:
        return step, value, np.zeros(0), np.zeros(0)
    edge = np.linspace(0, len(step), MOST_POINTS + 1).astype(np.int64)
    begin, size = edge[:-1], np.diff(edge)
    mean = np.add.reduceat(value, begin) / size
    middle = step[begin + size // 2].copy()
    middle[0], middle[-1] = step[0], step[-1]
    return middle, mean, np.minimum.reduceat(value, begin), np.maximum.reduceat(value, begin)


def smoothed(value: Column) -> Column:
    """The mean of the points around each one, as many as make noise readable; fewer at the ends."""
    reach = max(1, round(len(value) / 30))
    sums = np.concatenate([[0.0], np.cumsum(value)])
    index = np.arange(len(value))
    begin, end = np.maximum(0, index - reach), np.minimum(len(value), index + reach + 1)
    mean: Column = (sums[end] - sums[begin]) / (end - begin)
    return mean


def figure_text(value: float, *, is_share: bool = False) -> str:
    """A figure as people read it: '1,234,567', '0.0123', '47.1%'."""
    if is_share:
        return f"{value:.1%}"
    if value and abs(value) < 0.001:
        return f"{value:.2e}"
    if abs(value) >= 1000 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:#.4g}"


def rounded(value: float) -> float | None:
    """To DIGITS significant digits; None for what JSON has no number for."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def numbers(values: npt.ArrayLike) -> list[float | None]:
    """Each of them rounded."""
    return [rounded(value) for value in np.asarray(values, np.float64).tolist()]
