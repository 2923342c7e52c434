"""quarantine.jsonl: a line for each game that could not be imported, up to a bound, then how many more.

What is left of a file that cannot be read to its end counts as one game of the kind `unreadable`.
"""

from __future__ import annotations

import json
from pathlib import Path

import alphazero._core as _core
from alphazero.data.formats.lc0 import Lc0Chunk
from alphazero.data.store.writer import write_whole

MOST_LINES = 100_000  # some 20 MB
LEFT_OUT = "left_out"  # key of the last line of a quarantine that is full
UNREADABLE = "unreadable"


class Quarantine:
    """The lines so far, at most `most_lines`. first_reason: what was wrong with the first game."""

    def __init__(self, most_lines: int) -> None:
        self.first_reason = ""
        self._most_lines = most_lines
        self._lines: list[dict[str, object]] = []

    def add(
        self, games: _core.PgnGames | Lc0Chunk, source: str, games_before: int, lines_before: int
    ) -> None:
        """The faulty games of a chunk, as long as there is room.

        games_before, lines_before: of the source, before that chunk. Games and lines of the source count
        from 1, plies are those read before.
        """
        for fault in games.quarantined[: self._most_lines - len(self._lines)]:
            game, line = games_before + fault.game, lines_before + fault.line
            self.add_one(source, game, line, fault.fault.name.lower(), fault.reason, fault.ply)

    def add_one(self, source: str, game: int, line: int, kind: str, reason: str, ply: int = 0) -> None:
        """One game, or what could not be read of a file; game and line count from 0."""
        self.first_reason = self.first_reason or reason
        if len(self._lines) < self._most_lines:
            body = {"source": source, "game": game + 1, "line": line + 1, "ply": ply}
            self._lines.append({**body, "kind": kind, "reason": reason})

    def write(self, path: Path, num_games: int) -> None:
        """Write the file; a last line states how many of the `num_games` have none. Raises DataError."""
        missing = num_games - len(self._lines)
        lines = [*self._lines, {LEFT_OUT: missing}] if missing else self._lines
        write_whole(path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
