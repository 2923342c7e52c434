"""quarantine.jsonl: a line for each game that could not be imported, up to a bound, then how many more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.data.formats.lc0 import Lc0Chunk

MOST_LINES = 100_000  # some 20 MB
LEFT_OUT = "left_out"  # key of the last line of a quarantine that is full


class Quarantine:
    """The open file. Raises DataError."""

    def __init__(self, path: Path, most_lines: int) -> None:
        """A new file at `path`, which gets at most `most_lines`."""
        self._path = path
        self._most_lines = most_lines
        self._num_lines = 0
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise self._fault(error) from error

    def add(
        self, games: _core.PgnGames | Lc0Chunk, source_name: str, games_before: int, lines_before: int
    ) -> None:
        """Lines for the faulty games of a chunk, as long as there is room.

        games_before, lines_before: of the source, before that chunk.
        """
        described = games.quarantined[: max(0, self._most_lines - self._num_lines)]
        try:
            for game in described:
                self._file.write(quarantine_line(game, source_name, games_before, lines_before))
        except OSError as error:
            raise self._fault(error) from error
        self._num_lines += len(described)

    def finish(self, num_games: int) -> None:
        """State in a last line how many of the `num_games` have none, and flush all to the disk."""
        try:
            if num_games > self._num_lines:
                line = {LEFT_OUT: num_games - self._num_lines}
                self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._fault(error) from error

    def first_reason(self) -> str:
        """What was wrong with the first game; nothing if there is none."""
        with self._path.open("rb") as lines:
            first = lines.readline()
        return str(json.loads(first)["reason"]) if first else ""

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> DataError:
        return DataError(f"{self._path}: cannot write: {error.strerror}")


def quarantine_line(
    game: _core.PgnQuarantined, source_name: str, games_before: int, lines_before: int
) -> bytes:
    """A line of quarantine.jsonl. Games and lines of the source count from 1, plies are those read before."""
    body = {
        "source": source_name,
        "game": games_before + game.game + 1,
        "line": lines_before + game.line + 1,
        "ply": game.ply,
        "kind": game.fault.name.lower(),
        "reason": game.reason,
    }
    return json.dumps(body, ensure_ascii=True).encode() + b"\n"
