"""A position of a game as a search values it, and the mark of a move by the chances that it gives away."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import chess.engine
import chess.pgn

from alphazero.games.core_types import Line
from alphazero.play.net import search_line
from alphazero.play.uci.protocol import centipawns
from alphazero.search.tree_search import SearchLimits, TreeSearch


@dataclass(frozen=True)
class Assessment:
    """Of a position, for the side to move. chances: W - L with the best move. mate: as that of a MoveReport,
    0 for a side that is mated. best_line: as the core writes moves, empty where the game is over.
    """

    chances: float
    mate: int | None = None
    best_line: tuple[str, ...] = ()

    def score(self) -> chess.engine.Score:
        """As `[%eval]` has it: lc0's centipawns, or moves to mate."""
        if self.mate is not None:
            return chess.engine.Mate(self.mate)
        return chess.engine.Cp(centipawns(self.chances))


def assess(tree: TreeSearch, line: Line, limits: SearchLimits) -> Assessment:
    """Search the end of a line; where the rules leave no move, they decide."""
    if not line.legal():
        outcome = line.outcome()
        return Assessment(float(outcome.value), 0 if outcome.value else None)
    best = search_line(tree, line, limits, 1).best
    assert best is not None, "there is a move"
    if best.mate is not None:
        return Assessment(1.0 if best.mate > 0 else -1.0, best.mate, best.pv_texts)
    return Assessment(best.q, None, best.pv_texts)


class MoveMark(Enum):
    """Of a move that gives chances away, by how much of W - L (-1 to 1), the largest loss first.

    Names, marks and limits are those of Lichess (lila, modules/tree/src/main/Advice.scala), which derives
    chances from centipawns; here they are the network's.
    """

    BLUNDER = (0.3, chess.pgn.NAG_BLUNDER, "??")
    MISTAKE = (0.2, chess.pgn.NAG_MISTAKE, "?")
    INACCURACY = (0.1, chess.pgn.NAG_DUBIOUS_MOVE, "?!")

    def __init__(self, least_loss: float, nag: int, mark: str) -> None:
        self.least_loss, self.nag, self.mark = least_loss, nag, mark


def judge(move: str, before: Assessment, after: Assessment) -> MoveMark | None:
    """Of a move, as the core writes it, from the positions before and after; never of the search's first."""
    if before.best_line[:1] == (move,):
        return None
    loss = before.chances + after.chances
    return next((each for each in MoveMark if loss >= each.least_loss), None)
