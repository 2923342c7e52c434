"""The figures of a run by kind, as columns: the newest line of metrics.jsonl for each step."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import DataError
from alphazero.base.files import open_regular, resolved
from alphazero.base.section import MOST_STEPS
from alphazero.run.directory import RunDirectory

Column = npt.NDArray[np.float64]

STEP = "step"
_TEXT_KINDS = ("alarm",)
LONGEST_TEXT = 1000
# Steps without a line: more in a row are lines that the file has lost, not steps that were left out.
LONGEST_GAP = 1000
# No figure of a run is larger, and none larger can be drawn on an axis.
LARGEST_FIGURE = 1e15


@dataclass(frozen=True)
class Lines:
    """All lines of one kind, by step. columns: NaN where a line does not have the figure."""

    step: Column = field(default_factory=lambda: np.zeros(0))
    columns: Mapping[str, Column] = field(default_factory=dict)

    def rows(self) -> list[dict[str, float]]:
        """The lines, each with the figures that it has and its step."""
        columns = {STEP: self.step, **self.columns}
        return [
            {name: float(column[row]) for name, column in columns.items() if not np.isnan(column[row])}
            for row in range(len(self.step))
        ]

    def known(self, name: str) -> tuple[Column, Column]:
        """The steps that have a figure `name` of at most LARGEST_FIGURE either way, and the figures."""
        column = self.columns.get(name)
        if column is None:
            return np.zeros(0), np.zeros(0)
        is_known = np.abs(column) <= LARGEST_FIGURE
        return self.step[is_known], column[is_known]

    def last(self, name: str) -> float | None:
        """The newest finite figure."""
        _, values = self.known(name)
        return float(values[-1]) if len(values) else None


@dataclass(frozen=True)
class AlarmLine:
    """An alarm of the run."""

    step: int
    cause: str
    text: str
    advice: str


@dataclass(frozen=True)
class RunFigures:
    """The figures and alarms in metrics.jsonl of a run."""

    name: str
    kinds: Mapping[str, Lines] = field(default_factory=dict)
    alarms: tuple[AlarmLine, ...] = ()
    num_damaged: int = 0

    @classmethod
    def read(cls, run: RunDirectory, name: str = "", only: str = "") -> RunFigures:
        """Damaged lines are skipped and counted. Raises DataError where the run has no figures.

        only: a kind; others are skipped, which is faster.
        """
        reader = _Reader()
        try:
            reader.read(run.metrics, f'"kind": "{only}' if only else "")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DataError(f"{run.metrics}: no such file; expected a run directory") from error
        except OSError as error:
            raise DataError(f"{run.metrics}: cannot be read: {error.strerror}") from error
        return cls(name or resolved(run.path).name, reader.lines(), tuple(reader.alarms), reader.num_damaged)

    def of(self, kind: str) -> Lines:
        """The lines of a kind; none where there are none."""
        return self.kinds.get(kind, Lines())

    @cached_property
    def _clock(self) -> tuple[Column, Column]:
        steps, minutes = self.of("speed").known("minutes")
        return np.concatenate([[0.0], steps]), np.concatenate([[0.0], minutes])

    def minutes(self, steps: Column) -> Column:
        """Wall time of the run at these steps, between those of its log lines."""
        return np.interp(steps, *self._clock)

    @cached_property
    def last_step(self) -> int:
        """The newest step that any training figure is of; 0 before the first."""
        newest = [self.of(kind).step for kind in (STEP, "speed", "validation", "self_play")]
        return int(max((steps[-1] for steps in newest if len(steps)), default=0))

    @cached_property
    def skipped_steps(self) -> Column:
        """Steps that were left out, as their figures were not finite: those that have no line."""
        steps = self.of(STEP).step
        missing = np.diff(steps) - 1
        missing[missing > LONGEST_GAP] = 0
        gaps = [steps[index] + np.arange(1, missing[index] + 1) for index in np.flatnonzero(missing)]
        return np.concatenate([np.zeros(0), *gaps])


class _Reader:
    """Collects columns of all kinds from the lines of a file."""

    def __init__(self) -> None:
        self.alarms: list[AlarmLine] = []
        self.num_damaged = 0
        self._columns: dict[str, dict[str, array[float]]] = {}

    def read(self, path: Path, text: str) -> None:
        """All complete lines with this text."""
        with open_regular(path) as file:
            for line in file:
                if text.encode() in line and line.endswith(b"\n") and line.strip():
                    self._read_line(line)

    def _read_line(self, text: bytes) -> None:
        try:
            line = json.loads(text)
            kind, step = line.pop("kind"), float(line.pop("step"))
            if not isinstance(kind, str) or not (0 <= step <= MOST_STEPS and step.is_integer()):
                raise ValueError("no step")
            if kind in _TEXT_KINDS:
                words = (str(line.get(name, ""))[:LONGEST_TEXT] for name in ("cause", "text", "advice"))
                self.alarms.append(AlarmLine(int(step), *words))
                return
            # Text beside the figures is ignored; a figure that is no number spoils the line.
            row = {name: float(value) for name, value in line.items() if not isinstance(value, str)}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            self.num_damaged += 1
            return
        columns = self._columns.setdefault(kind, {STEP: array("d")})
        num_rows = len(columns[STEP])
        for name, value in {STEP: step, **row}.items():
            column = columns.setdefault(name, array("d"))
            if len(column) < num_rows:
                column.extend([math.nan] * (num_rows - len(column)))
            column.append(value)

    def lines(self) -> dict[str, Lines]:
        """What was read, by kind; of several lines of one step the last is kept."""
        return {kind: _newest(columns) for kind, columns in self._columns.items()}


def _newest(columns: Mapping[str, array[float]]) -> Lines:
    steps = np.array(columns[STEP])
    # np.unique keeps the first of equals: of the reversed lines, the last written.
    unique, rows = np.unique(steps[::-1], return_index=True)
    chosen = len(steps) - 1 - rows
    joined = {name: np.full(len(steps), math.nan) for name in columns if name != STEP}
    for name, column in joined.items():
        column[: len(columns[name])] = columns[name]
    return Lines(unique, {name: column[chosen] for name, column in joined.items()})
