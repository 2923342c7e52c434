"""What happened in a run beside learning: starts, skipped steps, alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alphazero.report.content.overview import Start
from alphazero.report.panels.figures import RunFigures
from alphazero.report.panels.panel import rounded
from alphazero.text import counted

MOST_OF_A_KIND = 200  # events of a run that are told one by one
RESTART, SKIPPED, ALARM = "restart", "skipped", "alarm"


@dataclass(frozen=True)
class Event:
    """One thing. step: None where it is not known; such an event is listed, and marked in no picture."""

    kind: str
    step: int | None
    text: str
    advice: str = ""

    def to_json(self, figures: RunFigures) -> dict[str, Any]:
        """Plain values."""
        minutes = None if self.step is None else rounded(float(figures.minutes(np.array([self.step]))[0]))
        return {
            "kind": self.kind,
            "step": self.step,
            "minutes": minutes,
            "text": self.text,
            "advice": self.advice,
        }


def events_of(figures: RunFigures, starts: Sequence[Start]) -> list[Event]:
    """All events by kind, the first ones of each."""
    found = [
        Event(
            RESTART,
            start.step,
            f"started again on {start.host or 'an unknown host'} at {start.time or 'an unknown time'}",
        )
        for start in starts[1:]
    ]
    found += [
        Event(SKIPPED, int(first), f"{counted(int(last - first) + 1, 'step')} skipped: not finite")
        for first, last in _stretches(figures)
    ][:MOST_OF_A_KIND]
    found += [
        Event(ALARM, alarm.step, f"{alarm.cause}: {alarm.text}" if alarm.cause else alarm.text, alarm.advice)
        for alarm in figures.alarms[-MOST_OF_A_KIND:]
    ]
    return found


def _stretches(figures: RunFigures) -> list[tuple[float, float]]:
    """First and last of each run of skipped steps."""
    steps = figures.skipped_steps
    if not len(steps):
        return []
    breaks = np.flatnonzero(np.diff(steps) > 1)
    first = steps[np.concatenate([[0], breaks + 1])]
    last = steps[np.concatenate([breaks, [len(steps) - 1]])]
    return list(zip(first.tolist(), last.tolist(), strict=True))
