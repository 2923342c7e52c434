"""A line of a run's log: text with the time it was written, or a JSON object."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from enum import Enum
from typing import TextIO

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
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
        line if is_stamped(line) else f"{now} {line}" for line in re.findall(r"[^\n]*\n|[^\n]+", text)
    )


def is_stamped(line: str) -> bool:
    """True for a line that says when it was written."""
    return bool(_STAMPED.match(line))


def as_json(text: str, topic: Topic, fields: Mapping[str, object] | None = None) -> str:
    """A JSON object: time, topic, fields, text."""
    now = time.time()
    date, zone = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now)), time.strftime("%z")
    told = {"time": f"{date}.{int(now * 1000) % 1000:03d}{zone}", "topic": topic.value}
    return json.dumps({**told, **(fields or {}), "text": text})


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
    line = f"alphazero: {text}"
    return stamped(line) if has_time and not sys.stderr.isatty() else line


def error_line(text: str) -> str:
    """The last word of a command that failed, in the form that was asked for."""
    if os.environ.get(FORMAT_VARIABLE) == JSON:
        return as_json(text, Topic.ERROR)
    return f"alphazero: error: {text}"


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
        """Flush what is underneath."""
        self._stream.flush()

    def fileno(self) -> int:
        """Of the stream underneath."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """False: nobody draws a bar among JSON objects."""
        return False


def write_json_lines(source: str) -> None:
    """From here on this process, and those it starts, write JSON objects to stderr, a line each."""
    os.environ[FORMAT_VARIABLE] = JSON
    if not isinstance(sys.stderr, JsonStream):
        sys.stderr = JsonStream(sys.stderr, source)
