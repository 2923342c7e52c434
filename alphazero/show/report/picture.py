"""The page of a report as one picture (PNG, SVG, PDF): the same figures in the same units, over steps."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from alphazero.base.errors import DataError
from alphazero.base.text import as_utf8
from alphazero.show.report.panel import Mark, Panel, figure_text
from alphazero.show.report.report import RunReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
STYLES = ("-", "--", ":", "-.")
FEW_POINTS = 60  # are marked
STYLE = Path(__file__).with_name("assets") / "style.css"
# Of curves, as the page has them in the light.
CURVES = tuple(re.findall(r"--curve-\d: (#\w{6});", STYLE.read_text(encoding="utf-8"))[:10])
EVENTS = {"restart": ("0.5", "--"), "skipped": (CURVES[1], "-"), "alarm": (CURVES[4], "-")}
WIDTH = 190  # signs of a line of text


def save(report: RunReport, file: IO[bytes], form: str) -> None:
    """Write the picture as png, svg or pdf."""
    import matplotlib

    # Names are shown as they are: none is a formula. Letters that the font does not have become boxes.
    with warnings.catch_warnings(), matplotlib.rc_context({"text.parse_math": False}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        draw(report).savefig(file, format=form, dpi=110)


def draw(report: RunReport) -> Figure:
    """The result, and all panels with anything to show; several runs by colour, their curves by style."""
    from matplotlib.figure import Figure

    names = [run["name"] for run in report.body["runs"]]
    panels = [panel for panel in report.panels if panel.marks]
    if not panels:
        raise DataError("no figures to draw yet; expected runs that have logged steps")
    results = report.body["results"] or report.body["runs"][0]["result"]
    lines = [f"{', '.join(names)}   as of {report.body['made']}", results["sentence"]]
    head = "\n".join(_plain(part) for line in lines for part in textwrap.wrap(line, WIDTH))
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(6.2 * COLUMNS, 3.8 * rows + 0.2 * head.count("\n") + 0.6), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    events = [event for run in report.body["runs"] for event in run["events"] if event["step"] is not None]
    for panel, axis in zip(panels, axes, strict=False):
        _draw_panel(axis, panel, names)
        for event in events if panel.kind in ("curves", "shares") else ():
            color, style = EVENTS[event["kind"]]
            if axis.get_xlim()[0] <= event["step"] <= axis.get_xlim()[1]:
                axis.axvline(event["step"], color=color, linestyle=style, linewidth=0.8, alpha=0.6, zorder=0)
    for axis in axes[len(panels) :]:
        axis.remove()
    figure.suptitle(head, fontsize=11, x=0.01, ha="left")
    return figure


def _draw_panel(axis: Axes, panel: Panel, names: Sequence[str]) -> None:
    from matplotlib.ticker import FuncFormatter

    percent = FuncFormatter(lambda share, _: f"{round(100 * share, 1):g}%")
    axis.set_title(_plain(panel.title), fontsize=10)
    axis.set_ylabel(_plain(panel.unit))
    axis.grid(alpha=0.3)
    if panel.kind == "shares":
        labels = [_plain(curve["label"]) for curve in panel.marks]
        colors = [CURVES[curve["place"] % len(CURVES)] for curve in panel.marks]
        shares = [curve["value"] for curve in panel.marks]
        axis.stackplot(panel.marks[0]["step"], shares, labels=labels, colors=colors, alpha=0.75)
    else:
        for mark in panel.marks:
            _draw_mark(axis, panel, mark, names)
    if panel.kind in ("curves", "shares"):
        axis.set_xlabel("step")
        axis.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _short(step)))
    if panel.kind == "reliability":
        axis.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, zorder=0)
        axis.set_xlabel("across: expected; up: came true")
        axis.xaxis.set_major_formatter(percent)
    if panel.share:
        axis.yaxis.set_major_formatter(percent)
    elif panel.kind == "curves" and axis.get_ylim()[1] >= 10000:
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    if panel.share or panel.from_zero:
        axis.set_ylim(0.0, axis.get_ylim()[1] * (1.0 if panel.kind == "shares" else 1.05))
    if axis.get_legend_handles_labels()[1]:
        # Over the feet of bars: there may be no room above them.
        axis.legend(fontsize=7, loc="lower center" if panel.kind == "bars" else "best")


def _draw_mark(axis: Axes, panel: Panel, mark: Mark, names: Sequence[str]) -> None:
    several = len(names) > 1
    color = CURVES[mark["run" if several else "place"] % len(CURVES)]
    style = STYLES[mark["place"] % len(STYLES)] if several else "-"
    label = _plain(f"{names[mark['run']]}: {mark['label']}" if several else mark["label"])
    if panel.kind == "curves":
        _draw_curve(axis, mark, color, style, label)
    elif panel.kind == "reliability":
        axis.plot(mark["predicted"], mark["actual"], style, color=color, label=label, linewidth=1, marker=".")
    else:
        middles = np.arange(len(mark["categories"]))
        bars = middles + 0.8 * ((mark["run"] + 0.5) / len(names) - 0.5)
        drawn = axis.bar(bars, mark["values"], 0.8 / len(names), color=color, label=label)
        axis.bar_label(
            drawn, [figure_text(value, is_share=panel.share) for value in mark["values"]], fontsize=7
        )
        axis.set_xticks(middles, [_plain(name) for name in mark["categories"]])


def _draw_curve(axis: Axes, mark: Mark, color: str, style: str, label: str) -> None:
    """A curve with its newest and best value in the legend; of a noisy one the mean stands out."""
    step, value, low, high, mean = (
        np.array(mark[name], np.float64) for name in ("step", "value", "low", "high", "mean")
    )
    words = ", ".join(filter(None, (f"{label} {mark['last']}", mark["best"] and mark["best"]["text"])))
    if len(mean):
        axis.plot(step, mean, style, color=color, label=words, linewidth=1.5)
        axis.plot(step, value, color=color, linewidth=0.6, alpha=0.0 if len(low) else 0.28)
    else:
        marker = "." if len(step) <= FEW_POINTS else ""
        axis.plot(step, value, style, color=color, label=words, linewidth=1.2, marker=marker)
    if len(low):
        axis.fill_between(step, low, high, color=color, alpha=0.16, linewidth=0)
    if mark["best"] is not None:
        axis.plot([mark["best"]["step"]], [mark["best"]["value"]], "*", color=color, markersize=9)


def _short(value: float) -> str:
    """'2.5k', '1m': as the axes of the page have it."""
    for size, sign in ((1e9, "b"), (1e6, "m"), (1e3, "k")):
        if abs(value) >= size:
            return f"{round(value / size, 1):g}{sign}"
    return f"{value:g}"


def _plain(text: str) -> str:
    """A name as it is: matplotlib leaves labels out that begin with '_', and draws no broken UTF-8."""
    text = as_utf8(text)
    return f" {text}" if text.startswith("_") else text
