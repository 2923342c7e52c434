"""What rank 0 tells people: lines on stderr and in the run's log, and one progress bar."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm


class Console:
    """Silent on all ranks but 0. Lines and bar share the terminal; the log gets lines with the time."""

    def __init__(self, is_main: bool) -> None:
        self._is_main = is_main
        self._log: Path | None = None
        self._bar: tqdm[NoReturn] | None = None

    def log_to(self, path: Path) -> None:
        """Append every further line to `path` as well."""
        self._log = path

    def say(self, text: str) -> None:
        """One or more lines."""
        if not self._is_main:
            return
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()
        if self._log is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            with self._log.open("a", encoding="utf-8") as log:
                log.writelines(f"{stamp} {line}\n" for line in text.splitlines())

    def alarm(self, text: str) -> None:
        """One line from whichever rank: what rank 0 cannot know, as its host's memory."""
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()

    def start_bar(self, done: int, total: int) -> None:
        """Show progress of `total` steps; only where a person looks (a terminal)."""
        self._bar = tqdm(
            initial=done,
            total=total,
            unit="step",
            dynamic_ncols=True,
            disable=None if self._is_main else True,
        )

    def advance_bar(self) -> None:
        """One step is done."""
        if self._bar is not None:
            self._bar.update()

    def end_bar(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
