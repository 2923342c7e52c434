"""Tablebases in the engine's search: the moves of its root, and the positions of its tree that they decide.

As in lc0: at the root the moves that keep the result; in the tree, unless the root is in the tables, the
exact value of a position that follows a capture or a pawn move, below which nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from alphazero.base.errors import DataError
from alphazero.games.core_types import BatchEvaluation, Floats, Line, Positions
from alphazero.games.tablebases import BestMoves, Tablebases

if TYPE_CHECKING:
    import chess

T = TypeVar("T")

# A packed position of chess (csrc/games/chess/lc0_encoding.cpp): 104 bit planes, then 8 bytes. The planes of
# a position are the mover's pawns ... king, the other side's, and one for repetitions; then those before it.
_PIECE_PLANES, _PLANES_PER_POSITION = 12, 13
_THEIR_PAWNS = 6
_BIT_BYTES = 104 * 8
_CASTLING = slice(_BIT_BYTES, _BIT_BYTES + 4)
_CLOCK = _BIT_BYTES + 5
# Seen by the mover: where the other side's pawns begin, and where a double step ends.
_SEVENTH_RANK, _FIFTH_RANK = 0x00FF_0000_0000_0000, 0x0000_00FF_0000_0000


# By row of a batch, what tables say of its position for the side to move: -1, 0 or 1.
Results: TypeAlias = dict[int, int]


def decided(evaluation: BatchEvaluation, results: Results) -> tuple[Floats, Positions | None]:
    """wdl [B, 3] with these results in it, and u8 [B], 1 where they are; None without any."""
    if not results:
        return evaluation.wdl, None
    wdl, exact = evaluation.wdl.copy(), np.zeros(len(evaluation.wdl), np.uint8)
    for row, result in results.items():
        wdl[row] = (result > 0, result == 0, result < 0)
        exact[row] = 1
    return wdl, exact


class SearchTables:
    """Answers for one search at a time, counted.

    hits: answers since begin(). is_lost: a file could not be read, and no more are asked.
    """

    def __init__(self, tables: Tablebases, say: Callable[[str], None]) -> None:
        """say: takes the message about a file that cannot be read."""
        self.hits = 0
        self._tables = tables
        self._say = say
        self._decides_tree = True
        self.is_lost = False

    def begin(self, line: Line, among: Sequence[int], *, fast: bool) -> BestMoves | None:
        """The best of these moves (none: all) at the end of the line; begins to count. See Tablebases."""
        self.hits = 0
        best = self._asked(lambda: self._tables.best_moves(line, among, fast=fast))
        self.hits += best is not None
        self._decides_tree = best is None
        return best

    def decide(self, packed: Positions) -> Results:
        """Of packed positions."""
        if not self._decides_tree:
            return {}
        planes = packed[:, :_BIT_BYTES].view(np.uint64)
        pieces = np.bitwise_count(np.bitwise_or.reduce(planes[:, :_PIECE_PLANES], axis=1))
        rights = packed[:, _CASTLING].any(axis=1)
        few = (pieces <= self._tables.most_pieces) & ~rights & (packed[:, _CLOCK] == 0)
        results = {}
        for row in np.flatnonzero(few).tolist():
            board = board_of(planes[row].tolist())
            result = self._asked(partial(self._tables.result, board))
            if result is not None:
                results[row] = result
        self.hits += len(results)
        return results

    def _asked(self, question: Callable[[], T | None]) -> T | None:
        if self.is_lost:
            return None
        try:
            return question()
        except DataError as error:
            self.is_lost = True
            self._say(f"{error}; tablebases are no longer used")
            return None


def board_of(planes: Sequence[int]) -> chess.Board:
    """The position of bit planes; the mover has White, as tables know no colours. Its clock is 0."""
    import chess

    board = chess.Board(None)
    kinds = zip(planes[:6], planes[6:12], range(chess.PAWN, chess.KING + 1), strict=True)
    for ours, theirs, kind in kinds:
        for colour, squares in ((chess.WHITE, ours), (chess.BLACK, theirs)):
            for square in chess.scan_forward(squares):
                board.set_piece_at(square, chess.Piece(kind, colour))
    now, before = planes[_THEIR_PAWNS], planes[_PLANES_PER_POSITION + _THEIR_PAWNS]
    came = now & ~before & _FIFTH_RANK
    if came and (came << 16) & before & ~now & _SEVENTH_RANK:
        board.ep_square = came.bit_length() - 1 + 8
    return board
