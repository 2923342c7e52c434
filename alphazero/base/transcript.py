"""A file of the lines that a program reads and writes, each with its time: what a bug report needs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from alphazero.base.errors import ConfigError
from alphazero.base.text import quoted

READ, WRITTEN = ">>", "<<"  # as lc0 marks them (src/engine_loop.cc, src/chess/uciloop.cc)
KEPT_LINES = 200  # from before there is a file, as lc0 keeps them (src/utils/logging.cc)


class Transcript:
    """Adds lines to the end of a file, the last ones from before it was named first. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._file: TextIO | None = None
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)

    def open(self, name: str, place: str) -> None:
        """Write to this file from here on; "" ends it. Raises ConfigError and changes nothing."""
        with self._lock:
            if name == self._name:
                return
            try:
                path = Path(name).expanduser()
                file = path.open("a", 1, "utf-8", "backslashreplace") if name else None
            except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a home that is unknown
                why = error.strerror if isinstance(error, OSError) else error
                raise ConfigError(f"{place}: {quoted(name)}: cannot be written: {why}") from error
            self._close()
            self._name, self._file = name, file

    def add(self, sign: str, lines: Iterable[str]) -> str:
        """Add lines; what went wrong, after which the file is left, else ""."""
        now = datetime.now().isoformat(" ", "microseconds")
        with self._lock:
            added = [f"{now} {sign} {line}\n" for line in lines]
            if self._file is None:
                self._kept += added
                return ""
            try:
                self._file.writelines([*self._kept, *added])
                self._kept.clear()
            except (OSError, ValueError) as error:
                name = self._name
                self._close()
                return f"{quoted(name)}: cannot be written: {error}; it is closed"
            return ""

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # of a disk that is full: add() has reported it
                self._file.close()
        self._name, self._file = "", None
