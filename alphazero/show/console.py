"""The console of rank 0: lines on stderr and in the run's log, and the progress of the current work."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from alphazero.base.files import naming
from alphazero.base.log import (
    FIRST_SILENCE_S,
    JSON,
    LAYOUT,
    SHOWN_WHEN_QUIET,
    TEXT,
    Topic,
    Work,
    as_json,
    duration,
    stamped,
)
from alphazero.base.text import escaped

LONGEST_SILENCE_S = 60.0
TICK_S = 0.5
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{unit}{postfix}"
BAR_OF_UNKNOWN_LENGTH = "{desc}{postfix}"


@contextlib.contextmanager
def showing(what: str, total: int, unit: str) -> Iterator[Work]:
    """Show the progress of the block on a new console, for a command that does one thing."""
    console = Console(True)
    try:
        with console.working(what, total, unit) as work:
            yield work
    finally:
        console.close()


class Console:
    """Silent on all ranks but 0; any thread may call.

    On a terminal lines share the screen with a bar. Elsewhere lines are stamped with the time, and after
    five seconds of silence, then ten, up to a minute, a line reports the progress of the current work.
    """

    def __init__(self, is_main: bool, *, log_format: str = TEXT, quiet: bool = False) -> None:
        """log_format: text or json. quiet: show only warnings, validations and the end; the log has all."""
        self._is_main = is_main
        self._is_json = log_format == JSON
        self._is_quiet = quiet
        self._shows_bar = sys.stderr.isatty() and not self._is_json and not quiet
        self._has_time = not sys.stderr.isatty()
        self._log: Path | None = None
        self._works: list[Work] = []  # the innermost last: the one whose progress is shown
        self._bar: tqdm[NoReturn] | None = None
        self._steps: Work | None = None
        self._lock = threading.RLock()
        self._silent_s = 0.0
        self._longest_s = FIRST_SILENCE_S
        self._ticker: threading.Thread | None = None
        self._ended = threading.Event()

    def log_to(self, directory: Path) -> None:
        """Append every further line to the log in `directory` as well: log.txt, or log.jsonl."""
        self._log = directory / ("log.jsonl" if self._is_json else "log.txt")

    def say(self, text: str, topic: Topic = Topic.NEWS, figures: Mapping[str, object] | None = None) -> None:
        """Print one or more lines. figures: values for programs, in JSON."""
        if not self._is_main:
            return
        text = escaped(text, LAYOUT)
        line = as_json(text, topic, figures) if self._is_json else text
        with self._lock:
            if not self._is_quiet or topic in SHOWN_WHEN_QUIET:
                self._show(line)
            if self._log is not None:
                with naming(self._log), self._log.open("a", encoding="utf-8") as log:
                    log.write((line if self._is_json else stamped(text)) + "\n")

    def warn(self, text: str) -> None:
        """Print a warning, also with --quiet."""
        self.say(text, Topic.WARNING)

    def alarm(self, text: str) -> None:
        """Print one line from any rank: what rank 0 cannot know, as the memory of a host."""
        self._show(as_json(text, Topic.WARNING) if self._is_json else escaped(text))

    @contextlib.contextmanager
    def working(self, what: str, total: int = 0, unit: str = "") -> Iterator[Work]:
        """Show the progress of the block, which advances the Work."""
        work = self.begin(what, total, unit)
        try:
            yield work
        finally:
            self.end(work)

    def begin(self, what: str, total: int = 0, unit: str = "", done: int = 0) -> Work:
        """As `working`; `end` must follow."""
        work = Work(what, total, unit, done)
        if not self._is_main:
            return work
        with self._lock:
            self._close_bar(leave=False)
            self._works.append(work)
            self._open_bar()
            self._silent_s, self._longest_s = 0.0, FIRST_SILENCE_S
            if self._ticker is None:
                self._ticker = threading.Thread(target=self._tick, name="console", daemon=True)
                self._ticker.start()
        return work

    def end(self, work: Work) -> None:
        """End the work, and all that was begun after it."""
        with self._lock:
            indices = [index for index, running in enumerate(self._works) if running is work]
            if indices:
                # The bar of the steps stays on the screen at the end.
                self._close_bar(leave=work is self._steps)
                del self._works[indices[0] :]
                self._open_bar()

    def start_bar(self, done: int, total: int) -> None:
        """Begin training of `total` steps, of which `done` are made; ends all other work."""
        if self._works:
            self.end(self._works[0])
        self._steps = self.begin("training", total, "step", done)

    def advance_bar(self) -> None:
        """One step is done."""
        if self._steps is not None:
            self._steps.done += 1

    def note_bar(self, note: str, left_s: float) -> None:
        """Set the note beside the steps and the seconds left."""
        if self._steps is not None:
            self._steps.note, self._steps.left_s = note, left_s

    def end_bar(self) -> None:
        """End training; the bar stays on the screen."""
        if self._steps is not None:
            self.end(self._steps)
            self._steps = None

    def close(self) -> None:
        """End all work; lines may follow."""
        self._ended.set()
        with self._lock:
            if self._works:
                self.end(self._works[0])

    def _show(self, line: str) -> None:
        with self._lock:
            self._silent_s = 0.0
            if self._has_time and not self._is_json:
                line = stamped(line)
            try:
                tqdm.write(line, file=sys.stderr)
                sys.stderr.flush()
            except BrokenPipeError:
                # Whoever read this has ended, as ssh after Ctrl-C at DeepSpeed's launcher. The signal that
                # follows is answered with a checkpoint; the log has the lines.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

    def _open_bar(self) -> None:
        """A bar for the innermost work, on a terminal."""
        if not self._shows_bar or not self._works:
            return
        work = self._works[-1]
        self._bar = tqdm(
            desc=work.what,
            initial=work.done,
            total=work.total or None,
            dynamic_ncols=True,
            bar_format=_form(work),
        )
        self._move_bar()

    def _move_bar(self) -> None:
        """Update the bar."""
        if self._bar is not None:
            work = self._works[-1]
            # Its words and its length may only become known on the way, as the files of an import.
            self._bar.set_description_str(work.what, refresh=False)
            self._bar.total = work.total or None
            self._bar.unit = f" {work.unit}" if work.unit.isupper() else ""
            self._bar.bar_format = _form(work)
            self._bar.set_postfix_str(", ".join([duration(work.seconds), *work.remarks()]), refresh=False)
            self._bar.n = work.done
            self._bar.refresh()

    def _close_bar(self, leave: bool) -> None:
        if self._bar is not None:
            self._move_bar()
            self._bar.leave = leave
            self._bar.close()
            self._bar = None

    def _tick(self) -> None:
        """In its own thread: update the bar's time, and report progress after a silence."""
        while not self._ended.wait(TICK_S):
            with self._lock:
                self._move_bar()
                self._silent_s += TICK_S
                if self._works and self._bar is None and self._silent_s >= self._longest_s:
                    self._longest_s = min(2 * self._longest_s, LONGEST_SILENCE_S)
                    if not self._is_quiet:
                        work, text = self._works[-1], self._works[-1].line()
                        self._show(as_json(text, Topic.PROGRESS, work.fields()) if self._is_json else text)


def _form(work: Work) -> str:
    """How tqdm writes its bar."""
    return BAR if work.total else BAR_OF_UNKNOWN_LENGTH
