"""Test suites of chess positions (EPD): moves to find and to avoid."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import chess

from alphazero.base.errors import DataError, GameInputError
from alphazero.base.text import quoted, reason, shortened
from alphazero.data.formats.pgn import text_lines
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line

# The counters of a FEN, which some suites have; EPD has operations for them.
_COUNTERS = re.compile(r"((?:\S+\s+){4})(\d+)\s+(\d+)(?=\s|$)")


@dataclass(frozen=True)
class EpdPosition:
    """name: its id, else file and line. best: the moves of bm; any where there are none. avoid: of am."""

    name: str
    fen: str
    best: frozenset[int]
    avoid: frozenset[int]

    def line(self) -> Line:
        """The position to play from."""
        return make_line("chess", self.fen)

    def judge(self, line: Line, move: int) -> bool:
        """Whether it is one of the best, if these are known, and none to avoid."""
        return move not in self.avoid and (not self.best or move in self.best)


def read_epd(path: Path) -> list[EpdPosition]:
    """The positions of a file, plain or packed; empty lines and those of # are left out.

    Raises DataError naming file, line and value.
    """
    positions = [
        _position(f"{path}:{number}", f"{path.name}:{number}", text.strip())
        for number, text in enumerate(text_lines(path, "EPD positions"), start=1)
        if text.strip() and not text.lstrip().startswith("#")
    ]
    if not positions:
        raise DataError(f"{path}: no position; expected lines of EPD with bm or am")
    return positions


def _position(where: str, name: str, text: str) -> EpdPosition:
    try:
        board, operations = chess.Board.from_epd(_COUNTERS.sub(r"\1hmvc \2; fmvn \3; ", text, count=1))
        fen = board.fen(en_passant="fen")
        line = make_line("chess", fen)
        best, avoid = (
            frozenset(line.text_to_move(move.uci()) for move in cast("list[chess.Move]", given or []))
            for given in (operations.get("bm"), operations.get("am"))
        )
    except (GameInputError, ValueError) as error:
        raise DataError(f"{where}: {reason(error)}; expected a position of EPD") from error
    if line.outcome().over:
        raise DataError(f"{where}: {quoted(fen)}: the game is over; expected a position with a move to find")
    if not best | avoid:
        raise DataError(f"{where}: {quoted(text)}: expected bm or am with a move, as 'bm Nf3;'")
    return EpdPosition(shortened(str(operations.get("id") or name)), fen, best, avoid)
