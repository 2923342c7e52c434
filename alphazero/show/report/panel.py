"""What is drawn: panels of curves, stacked shares, reliability diagrams and bars, as plain data.

Panels that are curves of figures by name: which figures, and what is said where there are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from alphazero.show.report.figures import Column, RunFigures

# Points of a curve: more than a panel is wide help nobody, and a page of a long run stays small.
MOST_POINTS = 600
DIGITS = 5


class Best(str, Enum):
    """Which value of a curve is its best."""

    LOWEST = "lowest"
    HIGHEST = "highest"
    NONE = "none"


@dataclass(frozen=True)
class Point:
    """One value of a run."""

    step: float
    minutes: float
    value: float


@dataclass(frozen=True)
class Curve:
    """A figure of a run over its steps. place: of the figure in the panel; run: number of the run.

    low, high: the extremes of what a point stands for, where a curve was thinned or has an interval;
    else empty. is_noisy: a mean is drawn over the points, as each is of one batch.
    """

    label: str
    run: int
    place: int
    step: Column
    minutes: Column
    value: Column
    low: Column = field(default_factory=lambda: np.zeros(0))
    high: Column = field(default_factory=lambda: np.zeros(0))
    best: Point | None = None
    is_noisy: bool = False


@dataclass(frozen=True)
class Dots:
    """A reliability diagram of one source: predicted against what happened, each for `count` positions."""

    label: str
    run: int
    place: int
    predicted: Sequence[float]
    actual: Sequence[float]
    count: Sequence[int]


@dataclass(frozen=True)
class Bars:
    """A value a category."""

    label: str
    run: int
    place: int
    categories: Sequence[str]
    values: Sequence[float]
    counts: Sequence[int]


class Kind(str, Enum):
    """How a panel is drawn."""

    CURVES = "curves"
    SHARES = "shares"  # curves that add up to 1, one upon the other
    RELIABILITY = "reliability"
    BARS = "bars"


@dataclass(frozen=True)
class Panel:
    """One picture. group: the section it stands in. why_empty: what is said where nothing is drawn.

    note: a sentence under the title. is_log: a logarithmic scale makes sense. is_share: parts of 1.
    is_from_zero: the axis begins at 0.
    """

    name: str
    group: str
    title: str
    unit: str
    marks: tuple[Curve | Dots | Bars, ...]
    why_empty: str = ""
    kind: Kind = Kind.CURVES
    note: str = ""
    is_log: bool = False
    is_share: bool = False
    is_from_zero: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values; why_empty only where it is."""
        return {
            "name": self.name,
            "group": self.group,
            "title": self.title,
            "unit": self.unit,
            "kind": self.kind.value,
            "note": self.note,
            "log": self.is_log,
            "share": self.is_share,
            "from_zero": self.is_from_zero,
            "empty": "" if self.marks else self.why_empty,
            "marks": [_mark_json(mark) for mark in self.marks],
        }


def curve(
    label: str,
    run: int,
    place: int,
    figures: RunFigures,
    columns: tuple[Column, Column],
    best: Best = Best.NONE,
    *,
    is_noisy: bool = False,
) -> Curve | None:
    """Steps and values as a curve, thinned; None where there are none."""
    step, value = columns
    if not len(step):
        return None
    marked = None
    if best is not Best.NONE:
        index = int(value.argmin() if best is Best.LOWEST else value.argmax())
        at = float(figures.minutes(step[index : index + 1])[0])
        marked = Point(float(step[index]), at, float(value[index]))
    thinned = thin(step, value)
    minutes = figures.minutes(thinned[0])
    return Curve(label, run, place, thinned[0], minutes, *thinned[1:], best=marked, is_noisy=is_noisy)


def thin(step: Column, value: Column, most: int = MOST_POINTS) -> tuple[Column, Column, Column, Column]:
    """Steps, means, minima and maxima of stretches of a curve; the curve itself where it is short.

    No minimum or maximum is lost: each lies in the stretch that stands for it.
    """
    if len(step) <= most:
        return step, value, np.zeros(0), np.zeros(0)
    edge = np.linspace(0, len(step), most + 1).astype(np.int64)
    begin, size = edge[:-1], np.diff(edge)
    mean = np.add.reduceat(value, begin) / size
    middle = step[begin + size // 2].copy()
    middle[0], middle[-1] = step[0], step[-1]
    return middle, mean, np.minimum.reduceat(value, begin), np.maximum.reduceat(value, begin)


def rounded(value: float) -> float | None:
    """To DIGITS significant digits; None for what JSON has no number for."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def _numbers(values: npt.ArrayLike) -> list[float | None]:
    return [rounded(value) for value in np.asarray(values, np.float64).tolist()]


def _mark_json(mark: Curve | Dots | Bars) -> dict[str, Any]:
    common: dict[str, Any] = {"label": mark.label, "run": mark.run, "place": mark.place}
    if isinstance(mark, Curve):
        best = mark.best
        return common | {
            "step": [int(step) for step in mark.step],
            "minutes": _numbers(mark.minutes),
            "value": _numbers(mark.value),
            "low": _numbers(mark.low),
            "high": _numbers(mark.high),
            "noisy": mark.is_noisy,
            "best": best
            and {"step": int(best.step), "minutes": rounded(best.minutes), "value": rounded(best.value)},
        }
    if isinstance(mark, Dots):
        return common | {
            "predicted": _numbers(mark.predicted),
            "actual": _numbers(mark.actual),
            "count": list(mark.count),
        }
    return common | {
        "categories": list(mark.categories),
        "values": _numbers(mark.values),
        "counts": list(mark.counts),
    }


@dataclass(frozen=True)
class Figure:
    """One figure of one kind of lines, what it is called, and which of its values is the best."""

    kind: str
    name: str
    label: str
    best: Best = Best.NONE
    is_noisy: bool = False


@dataclass(frozen=True)
class CurvePanel:
    """A panel of curves. compared: what is drawn instead where several runs are; () is all."""

    name: str
    group: str
    title: str
    unit: str
    figures: tuple[Figure, ...]
    why_empty: str
    compared: tuple[Figure, ...] = ()
    note: str = ""
    is_log: bool = False
    is_share: bool = False
    is_from_zero: bool = False

    def of(self, runs: Sequence[RunFigures]) -> Panel:
        """Its curves of all runs."""
        chosen = self.compared if self.compared and len(runs) > 1 else self.figures
        curves: list[Curve] = []
        for number, run in enumerate(runs):
            for place, figure in enumerate(chosen):
                known = run.of(figure.kind).known(figure.name)
                found = curve(figure.label, number, place, run, known, figure.best, is_noisy=figure.is_noisy)
                if found is not None:
                    curves.append(found)
        return Panel(
            self.name,
            self.group,
            self.title,
            self.unit,
            tuple(curves),
            self.why_empty,
            note=self.note,
            is_log=self.is_log,
            is_share=self.is_share,
            is_from_zero=self.is_from_zero,
        )
