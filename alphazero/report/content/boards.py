"""Positions and moves as a page draws them: a letter a square, the squares that a move leads from and to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import chess

from alphazero.errors import GameInputError
from alphazero.games.core_types import Line
from alphazero.games.drawing import rows_of
from alphazero.games.notation import CHESS
from alphazero.report.panels.panel import rounded


@dataclass(frozen=True)
class Arrow:
    """A move with the share that somebody gives it. origin: -1 where a stone is put; target: -1 of a pass.

    Squares are numbered by rows from the top left.
    """

    text: str
    origin: int
    target: int
    share: float

    def to_json(self) -> list[Any]:
        """text, origin, target, share."""
        return [self.text, self.origin, self.target, rounded(self.share)]


class BoardReader:
    """Squares and moves of one position after another of a game."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._cells = cells_of(line)
        self._width = len(rows_of(line)[0])
        self._chess = chess.Board(str(line)) if line.NAME == CHESS else None

    def arrow(self, text: str, share: float = 1.0) -> Arrow:
        """A legal move in the game's own text. Raises GameInputError for any other."""
        move = self._legal(text)
        if self._chess is not None:
            san = self._chess.san(self._chess.parse_uci(text))
            return Arrow(san, self._square(text[:2]), self._square(text[2:4]), share)
        after = self._line.copy()
        after.push(move)
        return Arrow(self._line.move_to_text(move), -1, self._new_stone(cells_of(after)), share)

    def arrows(self, moves: Iterable[tuple[str, float]]) -> list[Arrow]:
        """Those of the moves that are legal here: a record of another game is no reason to fail."""
        found = []
        for text, share in moves:
            try:
                found.append(self.arrow(text, share))
            except GameInputError:
                continue
        return found

    def _legal(self, text: str) -> int:
        moves = {self._line.move_to_text(move): move for move in self._line.legal()}
        if text not in moves:
            raise GameInputError(f"{text!r}: expected a legal move")
        return moves[text]

    def _new_stone(self, after: str) -> int:
        for square, (was, is_now) in enumerate(zip(self._cells, after, strict=True)):
            if was == "." and is_now != ".":
                return square
        return -1

    def _square(self, name: str) -> int:
        height = len(self._cells) // self._width
        return (height - int(name[1])) * self._width + ord(name[0]) - ord("a")


def cells_of(line: Line) -> str:
    """The board from the top left, a letter a square and '.' where it is empty."""
    return "".join(rows_of(line))
