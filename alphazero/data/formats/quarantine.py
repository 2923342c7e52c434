"""quarantine.jsonl: a line for each game that could not be imported, up to a bound, then how many more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import alphazero._core as _core
from alphazero.data.formats.lc0 import Lc0Chunk
from alphazero.data.store.store import named_faults

MOST_LINES = 100_000  # some 20 MB
LEFT_OUT = "left_out"  # key of the last line of a quarantine that is full


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
        described = games.quarantined[: self._most_lines - self._num_lines]
        with named_faults("write", self._path):
            for game in described:
                self.first_reason = self.first_reason or game.reason
                body = {
                    "source": source_name,
                    "game": games_before + game.game + 1,
                    "line": lines_before + game.line + 1,
                    "ply": game.ply,
                    "kind": game.fault.name.lower(),
                    "reason": game.reason,
                }
                self._file.write(json.dumps(body).encode() + b"\n")
        self._num_lines += len(described)

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
