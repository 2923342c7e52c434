"""Othello's rules a second time, the slow way: a dictionary of squares, and a walk along every line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PASS = 64
DIRECTIONS = [(files, ranks) for files in (-1, 0, 1) for ranks in (-1, 0, 1) if (files, ranks) != (0, 0)]


class SlowOthello:
    """A position: stones by (file, rank) from (0, 0), which is a1, and the side to move, x or o."""

    def __init__(self) -> None:
        self.stones = {(3, 3): "o", (4, 4): "o", (4, 3): "x", (3, 4): "x"}
        self.turn = "x"

    @property
    def other(self) -> str:
        """The side that does not move."""
        return "o" if self.turn == "x" else "x"

    def turned_by(self, square: tuple[int, int], side: str) -> list[tuple[int, int]]:
        """Stones that turn over when `side` takes the square."""
        if square in self.stones:
            return []
        turned = []
        for files, ranks in DIRECTIONS:
            line = []
            file, rank = square[0] + files, square[1] + ranks
            while self.stones.get((file, rank), side) != side:
                line.append((file, rank))
                file, rank = file + files, rank + ranks
            if (file, rank) in self.stones:
                turned += line
        return turned

    def squares_of(self, side: str) -> list[int]:
        """The squares that `side` may take, ascending from a1, b1 ... h8."""
        return [s for s in range(64) if self.turned_by((s % 8, s // 8), side)]

    def moves(self) -> list[int]:
        """Squares, or a pass where there are none and the other side has some; none: the game is over."""
        return self.squares_of(self.turn) or ([PASS] if self.squares_of(self.other) else [])

    def play(self, move: int) -> None:
        """Make a legal move."""
        if move != PASS:
            square = (move % 8, move // 8)
            for stone in [*self.turned_by(square, self.turn), square]:
                self.stones[stone] = self.turn
        self.turn = self.other

    def lead(self) -> int:
        """Stones of the side to move less those of the other."""
        stones = list(self.stones.values())
        return stones.count(self.turn) - stones.count(self.other)

    def text(self) -> str:
        """Ranks from 8 to 1, digits for empty squares, and who is to move."""
        rows = ["".join(self.stones.get((f, r), ".") for f in range(8)) for r in reversed(range(8))]
        text = "/".join(rows)
        for empty in range(8, 0, -1):
            text = text.replace("." * empty, str(empty))
        return f"{text} {self.turn}"

    def planes(self) -> NDArray[np.uint8]:
        """[4, rank, file]: the mover's stones, the others, second player to move, ones."""
        board = np.array([[self.stones.get((f, r), ".") for f in range(8)] for r in range(8)])
        second = np.full((8, 8), self.turn == "o")
        return np.stack([board == self.turn, board == self.other, second, ~second | second]).astype(np.uint8)
