"""quarantine.jsonl: a line for each game that could not be imported, up to a bound, then how many more.

What is left of a file that cannot be read to its end counts as one game of the kind `unreadable`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import alphazero._core as _core
from alphazero.data.formats.lc0 import Lc0Chunk
from alphazero.data.store.store import named_faults

MOST_LINES = 100_000  # some 20 MB
LEFT_OUT = "left_out"  # key of the last line of a quarantine that is full
UNREADABLE = "unreadable"


class Quarantine:
    """The open file. Raises DataError."""

    def __init__(self, path: Path, most_lines: int) -> None:
        """A new file at `path`, which gets at most `most_lines`."""
        self.first_reason = ""  # what was wrong with the first game
        self._path = path
        self._most_lines = most_lines
        self._num_lines = 0
        with named_faults("write", path):
            self._file = path.open("wb")

    def add(
        self, games: _core.PgnGames | Lc0Chunk, source_name: str, games_before: int, lines_before: int
    ) -> None:
        """Lines for the faulty games of a chunk, as long as there is room.

        games_before, lines_before: of the source, before that chunk. Games and lines of the source count
        from 1, plies are those read before.
        """
        for fault in games.quarantined[: self._most_lines - self._num_lines]:
            game, line = games_before + fault.game + 1, lines_before + fault.line + 1
            self._write(source_name, game, line, fault.ply, fault.fault.name.lower(), fault.reason)

    def add_rest(self, source_name: str, games_before: int, lines_before: int, reason: str) -> None:
        """A line for what could not be read of a file, if there is room."""
        if self._num_lines < self._most_lines:
            self._write(source_name, games_before + 1, lines_before + 1, 0, UNREADABLE, reason)

    def _write(self, source: str, game: int, line: int, ply: int, kind: str, reason: str) -> None:
        self.first_reason = self.first_reason or reason
        body = {"source": source, "game": game, "line": line, "ply": ply, "kind": kind, "reason": reason}
        with named_faults("write", self._path):
            self._file.write(json.dumps(body).encode() + b"\n")
        self._num_lines += 1

    def finish(self, num_games: int) -> None:
        """State in a last line how many of the `num_games` have none, and flush all to the disk."""
        with named_faults("write", self._path):
            if num_games > self._num_lines:
                line = {LEFT_OUT: num_games - self._num_lines}
                self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with named_faults("write", self._path):
            self._file.close()
