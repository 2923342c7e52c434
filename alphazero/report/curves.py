"""Plots of a run's figures over its wall time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alphazero.errors import DataError
from alphazero.run.run_directory import RunDirectory, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = list[dict[str, float]]


@dataclass(frozen=True)
class RunFigures:
    """What metrics.jsonl of a run holds, by kind, one line a step."""

    name: str
    steps: Lines = field(default_factory=list)
    validations: Lines = field(default_factory=list)
    generations: Lines = field(default_factory=list)
    speeds: Lines = field(default_factory=list)
    time_shares: Lines = field(default_factory=list)

    @classmethod
    def read(cls, run: RunDirectory) -> RunFigures:
        """Raises DataError where the run has no figures."""
        if not run.metrics.is_file():
            raise DataError(f"{run.metrics}: no such file; expected a run directory")
        kinds = ("step", "validation", "self_play", "speed", "time_share")
        return cls(run.path.name, *(read_metrics(run, kind) for kind in kinds))

    def minutes(self, lines: Lines) -> npt.NDArray[np.float64]:
        """Wall time of the run at each line, between those of its log lines."""
        known = [line for line in self.speeds if "minutes" in line]
        steps, minutes = [0.0, *(line["step"] for line in known)], [0.0, *(line["minutes"] for line in known)]
        return np.interp([line["step"] for line in lines], steps, minutes)


@dataclass(frozen=True)
class Panel:
    """One plot: figures of one kind of lines, by name and label."""

    title: str
    unit: str
    kind: str  # a field of RunFigures
    figures: tuple[tuple[str, str], ...]
    percent: bool = False
    compared: tuple[tuple[str, str], ...] = ()  # instead of figures where several runs are drawn

    def figures_for(self, num_runs: int) -> tuple[tuple[str, str], ...]:
        """What is drawn of each run."""
        return self.compared if self.compared and num_runs > 1 else self.figures


_CLASSES = ("end-easy", "middle-easy", "middle-medium", "begin-easy", "begin-medium", "begin-hard")
PANELS = (
    Panel("training loss", "nats", "steps", (("policy_loss", "policy"), ("value_loss", "value"))),
    Panel(
        "validation: moves predicted",
        "share",
        "validations",
        (("policy_top1", "first move"), ("policy_top5", "first five")),
        percent=True,
    ),
    Panel(
        "moves that err against exact truth (network alone)",
        "share",
        "validations",
        tuple((f"move_error_{name.replace('-', '_')}", name) for name in _CLASSES),
        percent=True,
        compared=(("move_error", ""),),
    ),
    Panel("self-play: length of games", "plies", "generations", (("plies", ""),)),
    Panel(
        "self-play: results",
        "share",
        "generations",
        (("first_player_wins", "first player wins"), ("draws", "drawn")),
        percent=True,
    ),
    Panel("self-play: entropy of the policy targets", "nats", "generations", (("policy_entropy", ""),)),
    Panel("self-play: speed", "evaluations/s", "generations", (("evaluations_per_s", ""),)),
    Panel("training speed", "samples/s", "speeds", (("samples_per_s", ""),)),
    Panel(
        "where the training time goes",
        "share",
        "time_shares",
        (
            ("compute", "compute"),
            ("data_wait", "data"),
            ("communication", "communication"),
            ("checkpoint", "checkpoint"),
            ("host_overhead", "host"),
        ),
        percent=True,
        compared=(("compute", "compute"),),
    ),
)


def draw(runs: Sequence[RunFigures]) -> Figure:
    """All panels that one of the runs has figures for, two in a row; each run in a line style of its own."""
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if any(_has(run, panel) for run in runs)]
    if not panels:
        raise DataError("no figures to draw yet; expected runs that have logged steps")
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(13, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flatten()
    for panel, axis in zip(panels, axes, strict=False):
        _draw_panel(axis, panel, runs)
    for axis in axes[len(panels) :]:
        axis.remove()
    return figure


def _has(run: RunFigures, panel: Panel) -> bool:
    lines: Lines = getattr(run, panel.kind)
    return any(name in line for line in lines for name, _ in panel.figures)


def _draw_panel(axis: Axes, panel: Panel, runs: Sequence[RunFigures]) -> None:
    styles = ("-", "--", ":", "-.")
    for number, run in enumerate(runs):
        lines: Lines = getattr(run, panel.kind)
        figures = panel.figures_for(len(runs))
        for place, (name, label) in enumerate(figures):
            known = [line for line in lines if name in line]
            if not known:
                continue
            parts = [part for part in (label, run.name if len(runs) > 1 else "") if part]
            axis.plot(
                run.minutes(known),
                [line[name] for line in known],
                styles[number % len(styles)],
                color=f"C{place if len(figures) > 1 else number}",
                label=", ".join(parts),
                linewidth=1.2,
            )
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel("minutes")
    axis.set_ylabel(panel.unit)
    axis.grid(alpha=0.3)
    if panel.percent:
        from matplotlib.ticker import PercentFormatter

        axis.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        axis.set_ylim(bottom=0.0)
    if len(axis.get_legend_handles_labels()[1]) > 1:
        axis.legend(fontsize=8)
