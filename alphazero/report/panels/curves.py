"""Panels that are curves of figures by name: which figures, and what is said where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.report.panels.figures import RunFigures
from alphazero.report.panels.panel import Best, Curve, Panel, curve


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
