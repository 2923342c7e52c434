"""Figures of a run: written to metrics.jsonl, a line each, and other viewers; in words (read: figures.py)."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from alphazero.base.files import cut_unfinished_line, naming, open_regular, replacing
from alphazero.run.directory import RunDirectory

# Of an event: text or a number.
Field = str | float


class MetricWriter(Protocol):
    """Takes figures of one step; docs/runs.md lists the kinds and their figures."""

    def write(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        """Record figures, or an event: text as well as figures."""

    def flush(self) -> None:
        """Have all that came so far on disk: after the checkpoint that follows it is not made again."""

    def rewind(self, step: int) -> None:
        """The run goes back to the checkpoint of `step`: what came later will be made again."""

    def close(self, failed: bool = False) -> None:
        """Flush and release. failed: the run ended by an error."""


class JsonLinesWriter:
    """One JSON object a line; floats keep all their digits. The file has each step once."""

    def __init__(self, run: RunDirectory, first_step: int = 0) -> None:
        """first_step: of the checkpoint that the run continues from, else 0."""
        # Else the first line written now would continue the unfinished line of a killed run.
        cut_unfinished_line(run.metrics)
        self._path = run.metrics
        self._open_at(first_step)

    def _open_at(self, step: int) -> None:
        cut_after(self._path, step)
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, fields: Mapping[str, Field]) -> None:
        with naming(self._path):
            self._file.write(json.dumps({"kind": kind, "step": step, **fields}) + "\n")
            self._file.flush()

    def flush(self) -> None:
        """Nothing: every line is flushed."""

    def rewind(self, step: int) -> None:
        self._file.close()
        self._open_at(step)

    def close(self, failed: bool = False) -> None:
        with naming(self._path):  # what a full disk did not take is tried again
            self._file.close()


# How a line of JsonLinesWriter begins, and where an epoch, which has its own number, names its step.
_BEGINNING = re.compile(rb'\{"kind": "(\w+)", "step": (\d{1,18})\b')
_END_OF_EPOCH = re.compile(rb'"ended_in_step": (\d{1,18})\b')
# What happened, and does not happen again when steps are made once more.
_EVENTS = (b"alarm", b"health")


def cut_after(path: Path, step: int) -> None:
    """Remove the figures of what a run that continues after `step` makes once more."""
    if not path.exists():
        return
    with open_regular(path) as file:
        if all(_is_before(line, step) for line in file):
            return
        file.seek(0)
        with replacing(path) as kept:
            kept.writelines(line for line in file if _is_before(line, step))


def _is_before(line: bytes, step: int) -> bool:
    match = _BEGINNING.match(line)
    if match is None or match[1] in _EVENTS:
        return True
    if match[1] == b"epoch":
        match = _END_OF_EPOCH.search(line)
        return match is None or int(match[1]) <= step
    # A generation stands at the step before it, whose checkpoint comes before its games.
    return int(match[2]) + (match[1] == b"self_play") <= step


class AllWriters:
    """The configured writers of a run, as one; any thread may call, and nothing is written after close."""

    def __init__(
        self,
        writers: list[MetricWriter],
        first_step: int = 0,
        finish: Callable[[bool], None] | None = None,
    ) -> None:
        """finish: called once all are closed, with whether the run failed."""
        self._writers = writers
        self._finish = finish
        self._step = first_step
        self._lock = threading.Lock()

    def write(self, kind: str, step: int | None, fields: Mapping[str, Field]) -> None:
        """Record fields of a step; None is the last that was written."""
        with self._lock:
            self._step = max(self._step, step or 0)  # epochs are counted apart
            for writer in self._writers:
                writer.write(kind, self._step if step is None else step, fields)

    def event(self, kind: str, fields: Mapping[str, Field]) -> None:
        """Record what happened now. `time_s` is put in where it is not given: seconds of the wall clock."""
        self.write(kind, None, {"time_s": round(time.time(), 3), **fields})

    def flush(self) -> None:
        with self._lock:
            for writer in self._writers:
                writer.flush()

    def rewind(self, step: int) -> None:
        with self._lock:
            self._step = step
            for writer in self._writers:
                writer.rewind(step)

    def close(self, failed: bool = False) -> None:
        with self._lock:
            writers, self._writers = self._writers, []
            for writer in writers:
                writer.close(failed)
            if self._finish is not None:
                self._finish(failed)
                self._finish = None


def explain_validation(figures: Mapping[str, float], first: Mapping[str, float] | None = None) -> str:
    """What the figures mean, in a sentence for a first reader; "" without any.

    first: of the first validation, which they are compared with.
    """
    sentences = []

    def was(share: float | None) -> str:
        return "" if share is None else f" (at the first validation: {share:.1%})"

    first = first or {}
    if "policy_top1" in figures:
        sentences.append(
            f"In games that it never saw the network expects the move that was played in "
            f"{figures['policy_top1']:.1%} of the positions{was(first.get('policy_top1'))}."
        )
    if "move_error" in figures:
        error = first.get("move_error")
        sentences.append(
            f"Of solved positions it plays {1 - figures['move_error']:.1%} correctly, without any search"
            f"{was(None if error is None else 1 - error)}."
        )
    return " ".join(sentences)
