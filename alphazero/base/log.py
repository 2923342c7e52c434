"""Lines of a run's log, as text with a time or as JSON objects, and the progress of a piece of work."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TextIO

from alphazero.base.text import counted, escaped

TEXT, JSON = "text", "json"
Say = Callable[[str], None]  # prints a line for the user
LAYOUT = "\n\t"  # of texts that this program lays out
# Tells the processes of a job in which form an error is shown; the settings are not known everywhere.
FORMAT_VARIABLE = "ALPHAZERO_LOG_FORMAT"
_STAMPED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |\{\"time\": ")


class Topic(str, Enum):
    """What a line is about: `topic` of a JSON object, and what --quiet leaves out."""

    NEWS = "news"
    STEP = "step"
    PROGRESS = "progress"
    VALIDATION = "validation"
    WARNING = "warning"
    ERROR = "error"
    END = "end"


SHOWN_WHEN_QUIET = frozenset({Topic.VALIDATION, Topic.WARNING, Topic.ERROR, Topic.END})


def stamped(text: str) -> str:
    """Each line with the time in front; a line that has one keeps it. The last line may lack its end."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return "".join(
        line if _STAMPED.match(line) else f"{now} {line}" for line in re.findall(r"[^\n]*\n|[^\n]+", text)
    )


def as_json(text: str, topic: Topic, fields: Mapping[str, object] | None = None) -> str:
    """A JSON object: time, topic, fields, text."""
    now = datetime.now().astimezone().isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "topic": topic.value, **(fields or {}), "text": text})


def in_json(text: str, source: str) -> str:
    """Lines that may be anything as JSON objects, a line each; those that are such objects stay.

    source: the process or host that wrote them.
    """
    lines = [line.rpartition("\r")[2] for line in text.rstrip("\n").split("\n")]
    return "".join(
        (line if _is_json(line) else as_json(line, Topic.NEWS, {"source": source})) + "\n"
        for line in lines
        if line.strip()
    )


def program_line(text: str, *, has_time: bool = True) -> str:
    """A line of a program outside the run: a launcher, a rank before it knows its run.

    has_time: it belongs to a job, whose lines have their time where no terminal is.
    """
    if os.environ.get(FORMAT_VARIABLE) == JSON:
        return as_json(text, Topic.NEWS, {"source": "alphazero"})
    line = f"alphazero: {escaped(text)}"
    return stamped(line) if has_time and not sys.stderr.isatty() else line


def error_line(text: str) -> str:
    """The error line of a command, in the requested format."""
    if os.environ.get(FORMAT_VARIABLE) == JSON:
        return as_json(text, Topic.ERROR)
    return f"alphazero: error: {escaped(text)}"


def _is_json(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


class JsonStream(io.TextIOBase):
    """Takes the place of a text stream: what anyone prints there comes out as JSON objects, a line each."""

    def __init__(self, stream: TextIO, source: str) -> None:
        super().__init__()
        self._stream = stream
        self._source = source
        self._rest = ""

    def write(self, text: str) -> int:
        """Pass on whole lines; the rest waits for its end."""
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            self._stream.write(in_json("\n".join(lines), self._source))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        """False: no bar is drawn among JSON objects."""
        return False


def write_json_lines(source: str) -> None:
    """From here on this process, and those it starts, write JSON objects to stderr, a line each."""
    os.environ[FORMAT_VARIABLE] = JSON
    if not isinstance(sys.stderr, JsonStream):
        sys.stderr = JsonStream(sys.stderr, source)


LEAST_SHARE = 0.02  # done before the rest is estimated: of games that begin, few end early
FIRST_SILENCE_S = 5.0  # until the first line about progress, where there is no bar


@dataclass
class Work:
    """what: in words, as 'self-play, generation 1'. total: units of it, 0 where unknown. unit: a noun in the
    singular, or a symbol as MB. note: more words for people. left_s: until its end, where it is known better
    than by the mean speed, else -1. clock: seconds that are never set back.
    """

    what: str
    total: int = 0
    unit: str = ""
    done: int = 0
    note: str = ""
    left_s: float = -1.0
    clock: Callable[[], float] = time.monotonic
    first: int = field(init=False)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.done
        self.started = self.clock()

    def advance(self, done: int, note: str = "") -> None:
        """So many units are done now."""
        self.done = done
        self.note = note or self.note

    def add(self, count: int) -> None:
        """So many more units are done."""
        self.done += count

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self.clock() - self.started

    @property
    def per_second(self) -> float:
        """Units per second since it began, 0 before the first."""
        return (self.done - self.first) / max(self.seconds, 1e-9)

    def line(self) -> str:
        """How it stands."""
        parts = [f"{self.what}: {duration(self.seconds)} so far"]
        if self.unit:
            of = f" of {self.total:,}" if self.total else ""
            plural = self.unit if self.unit.isupper() else f"{self.unit}s"
            parts = [f"{self.what}: {self.done:,}{of} {plural} in {duration(self.seconds)}"]
        if self.per_second and self.left_s < 0:
            rate = self.per_second
            if rate >= 1:
                parts.append(f"{rate:,.3g}/s" if rate < 100 else f"{rate:,.0f}/s")
            else:
                parts.append(f"{1 / rate:,.1f} s per {self.unit}")
        return " | ".join([*parts, *self.remarks()])

    def remarks(self) -> list[str]:
        """What else is known: the note, and how long it still takes."""
        left_s = self.left_s
        if left_s < 0 and self.per_second and self.done >= LEAST_SHARE * self.total > 0:
            left_s = max(0, self.total - self.done) / self.per_second
        parts = [self.note] if self.note else []
        return [*parts, f"about {duration(left_s)} left"] if left_s >= 0 else parts

    def fields(self) -> dict[str, object]:
        """The same for programs."""
        fields: dict[str, object] = {"work": self.what, "seconds": round(self.seconds, 1)}
        return fields | ({"done": self.done, "total": self.total, "unit": self.unit} if self.unit else {})


def duration(seconds: float) -> str:
    """'8 s', '2 min 10 s', '1 h 2 min', '3 days 4 h': no more than the two largest units."""
    whole, minutes, hours = round(seconds), round(seconds / 60), round(seconds / 3600)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        first, (rest, unit) = f"{whole // 60} min", (whole % 60, "s")
    elif minutes < 24 * 60:
        first, (rest, unit) = f"{minutes // 60} h", (minutes % 60, "min")
    else:
        first, (rest, unit) = counted(hours // 24, "day"), (hours % 24, "h")
    return f"{first} {rest} {unit}" if rest else first
