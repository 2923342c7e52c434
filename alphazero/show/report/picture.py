"""The panels of a report as one picture (PNG, SVG, PDF), over the wall time or the steps of the runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import numpy as np

from alphazero.base.errors import DataError
from alphazero.base.text import as_utf8
from alphazero.show.report.panel import Mark, Panel
from alphazero.show.report.report import RunReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
STYLES = ("-", "--", ":", "-.")
FEW_POINTS = 30  # are marked


def save(report: RunReport, file: IO[bytes], form: str) -> None:
    """Write the picture as png, svg or pdf."""
    import matplotlib

    # Names are shown as they are: none is a formula. Letters that the font does not have become boxes.
    with warnings.catch_warnings(), matplotlib.rc_context({"text.parse_math": False}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        draw(report).savefig(file, format=form, dpi=110)


def draw(report: RunReport) -> Figure:
    """All panels that have anything to show, over minutes; several runs by colour, their curves by style."""
    from matplotlib.figure import Figure

    names = [run["name"] for run in report.body["runs"]]
    panels = [panel for panel in report.panels if panel.marks]
    if not panels:
        raise DataError("no figures to draw yet; expected runs that have logged steps")
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(6.2 * COLUMNS, 3.5 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for panel, axis in zip(panels, axes, strict=False):
        _draw_panel(axis, panel, names)
    for axis in axes[len(panels) :]:
        axis.remove()
    figure.suptitle(", ".join(_plain(name) for name in names), fontsize=12)
    return figure


def _draw_panel(axis: Axes, panel: Panel, names: Sequence[str]) -> None:
    axis.set_title(_plain(panel.title), fontsize=10)
    axis.set_ylabel(_plain(panel.unit))
    axis.grid(alpha=0.3)
    if panel.kind == "shares":
        _draw_shares(axis, panel.marks)
    else:
        for mark in panel.marks:
            _draw_mark(axis, panel.kind, mark, names)
    if panel.kind == "reliability":
        axis.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, zorder=0)
    if panel.share:
        from matplotlib.ticker import PercentFormatter

        axis.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        axis.set_ylim(bottom=0.0)
    if axis.get_legend_handles_labels()[1]:
        # Over the feet of bars: there may be no room above them.
        axis.legend(fontsize=7, loc="lower center" if panel.kind == "bars" else "best")


def _draw_mark(axis: Axes, kind: str, mark: Mark, names: Sequence[str]) -> None:
    several = len(names) > 1
    color = f"C{mark['run'] if several else mark['place']}"
    style = STYLES[mark["place"] % len(STYLES)] if several else "-"
    label = _plain(f"{mark['label']}, {names[mark['run']]}" if several else mark["label"])
    if kind == "curves":
        minutes, value, low, high = (
            np.array(mark[name], np.float64) for name in ("minutes", "value", "low", "high")
        )
        marker = "." if len(minutes) <= FEW_POINTS else ""
        axis.plot(minutes, value, style, color=color, label=label, linewidth=1.2, marker=marker)
        if len(low):
            axis.fill_between(minutes, low, high, color=color, alpha=0.15, linewidth=0)
        if mark["best"] is not None:
            axis.plot([mark["best"]["minutes"]], [mark["best"]["value"]], "*", color=color, markersize=9)
        axis.set_xlabel("minutes")
    elif kind == "reliability":
        axis.plot(mark["predicted"], mark["actual"], style, color=color, label=label, linewidth=1, marker=".")
        axis.set_xlabel("expected")
    else:
        middles = np.arange(len(mark["categories"]))
        bars = middles + 0.8 * ((mark["run"] + 0.5) / len(names) - 0.5)
        axis.bar(bars, mark["values"], 0.8 / len(names), color=color, label=label)
        axis.set_xticks(middles, [_plain(name) for name in mark["categories"]])


def _draw_shares(axis: Axes, curves: Sequence[Mark]) -> None:
    labels = [_plain(one["label"]) for one in curves]
    minutes = curves[0]["minutes"]
    if len(minutes) == 1:  # an area of no width would not be seen
        bottom = 0.0
        for one, label in zip(curves, labels, strict=True):
            axis.bar([minutes[0]], [one["value"][0]], bottom=[bottom], label=label)
            bottom += one["value"][0]
    else:
        axis.stackplot(minutes, [one["value"] for one in curves], labels=labels, alpha=0.8)
    axis.set_xlabel("minutes")


def _plain(text: str) -> str:
    """A name as it is: matplotlib leaves labels out that begin with '_', and draws no broken UTF-8."""
    text = as_utf8(text)
    return f" {text}" if text.startswith("_") else text
