"""The figures of a run by kind, as columns: metrics.jsonl read fast, the newest line for each step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from alphazero.base.errors import DataError
from alphazero.base.files import open_regular
from alphazero.base.section import MOST_STEPS
from alphazero.run.directory import RunDirectory

Column = npt.NDArray[np.float64]

BLOCK_BYTES = 1 << 24
STEP = "step"
# What rank 0 writes for a step, of which a long run has a million lines: the reader of Arrow takes them.
_STEP_LINE = b'{"kind": "step", '
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

    def has(self, name: str) -> bool:
        """Is the figure known of any step?"""
        return len(self.known(name)[0]) > 0

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
    def read(cls, run: RunDirectory, name: str = "") -> RunFigures:
        """Damaged lines are skipped and counted. Raises DataError where the run has no figures."""
        if not run.metrics.exists():
            raise DataError(f"{run.metrics}: no such file; expected a run directory")
        reader = _Reader()
        try:
            reader.read(run.metrics)
        except OSError as error:
            raise DataError(f"{run.metrics}: cannot be read: {error.strerror}") from error
        return cls(name or run.path.resolve().name, reader.lines(), tuple(reader.alarms), reader.num_damaged)

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
        gaps = [steps[place] + np.arange(1, missing[place] + 1) for place in np.flatnonzero(missing)]
        return np.concatenate([np.zeros(0), *gaps])


class _Reader:
    """Collects columns of all kinds from the blocks of a file."""

    def __init__(self) -> None:
        self.alarms: list[AlarmLine] = []
        self.num_damaged = 0
        self._tables: dict[str, list[dict[str, Column]]] = {}
        self._rows: dict[str, list[dict[str, float]]] = {}

    def read(self, path: Path) -> None:
        """All complete lines."""
        with open_regular(path) as file:
            rest = b""
            while block := file.read(BLOCK_BYTES):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    self._read_lines(whole.split(b"\n"))

    def _read_lines(self, lines: list[bytes]) -> None:
        steps = [line for line in lines if line.startswith(_STEP_LINE)]
        self._read_steps(steps)
        if len(steps) < len(lines):
            for line in lines:
                if not line.startswith(_STEP_LINE) and line.strip():
                    self._read_line(line)

    def _read_steps(self, lines: list[bytes]) -> None:
        """Lines of steps, all at once; one by one where Arrow does not take them (NaN, a damaged line)."""
        if not lines:
            return
        try:
            table = pa.json.read_json(BytesIO(b"\n".join(lines)))
            columns = _columns_of(table)
            if table.num_rows != len(lines) or STEP not in columns or not _are_steps(columns[STEP]):
                raise ValueError("other than a row a line")
        except (pa.ArrowException, ValueError):
            self._flush(STEP)
            for line in lines:
                self._read_line(line)
            self._flush(STEP)
            return
        self._flush(STEP)
        self._tables.setdefault(STEP, []).append(columns)

    def _read_line(self, text: bytes) -> None:
        try:
            line = json.loads(text)
            kind, step = line.pop("kind"), float(line.pop("step"))
            if not isinstance(kind, str) or not _are_steps(step):
                raise ValueError("no step")
            if kind in _TEXT_KINDS:
                self.alarms.append(_alarm(int(step), line))
                return
            # Text beside the figures is ignored; a figure that is no number spoils the line.
            row = {name: float(value) for name, value in line.items() if not isinstance(value, str)}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
            self.num_damaged += 1
            return
        self._rows.setdefault(kind, []).append({STEP: step, **row})

    def _flush(self, kind: str) -> None:
        """Rows that were read one by one become columns, in their place."""
        if rows := self._rows.pop(kind, []):
            names = dict.fromkeys(name for row in rows for name in row)
            columns = {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
            self._tables.setdefault(kind, []).append(columns)

    def lines(self) -> dict[str, Lines]:
        """What was read, by kind; of several lines of one step the last is kept."""
        for kind in list(self._rows):
            self._flush(kind)
        return {kind: _newest(tables) for kind, tables in self._tables.items()}


def _columns_of(table: pa.Table) -> dict[str, Column]:
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if name == "kind" or pa.types.is_null(kind):
            continue
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ValueError(f"{name} holds {kind}")
        columns[name] = column.to_numpy().astype(np.float64)
    return columns


def _newest(tables: Iterable[Mapping[str, Column]]) -> Lines:
    parts = list(tables)
    names = dict.fromkeys(name for part in parts for name in part)
    sizes = [len(part[STEP]) for part in parts]
    joined = {
        name: np.concatenate(
            [part.get(name, np.full(size, math.nan)) for part, size in zip(parts, sizes, strict=True)]
        )
        for name in names
    }
    steps = joined.pop(STEP)
    if np.all(np.diff(steps) > 0):
        return Lines(steps, joined)
    # np.unique keeps the first of equals: of the reversed lines, the last written.
    unique, place = np.unique(steps[::-1], return_index=True)
    chosen = len(steps) - 1 - place
    return Lines(unique, {name: column[chosen] for name, column in joined.items()})


def _are_steps(values: Column | float) -> bool:
    """Whether all are whole numbers that a step can have. Other lines are damage."""
    return bool(np.all((values >= 0) & (values <= MOST_STEPS) & (values == np.floor(values))))


def _alarm(step: int, line: Mapping[str, object]) -> AlarmLine:
    words = (str(line.get(name, ""))[:LONGEST_TEXT] for name in ("cause", "text", "advice"))
    return AlarmLine(step, *words)
