"""A game of PGN annotated: an evaluation after each move, marks on bad ones, the better line beside them.

Headers, comments, variations and marks that the game has are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import chess
import chess.engine
import chess.pgn

import alphazero._core as _core
from alphazero.base.errors import GameInputError
from alphazero.base.text import shortened
from alphazero.games.core_types import Line
from alphazero.games.notation import from_python_chess
from alphazero.games.registry import make_line
from alphazero.play.net import search_line
from alphazero.play.uci.protocol import centipawns
from alphazero.search.tree_search import SearchLimits, TreeSearch

LONGEST_LINE = 10  # moves of a better line
ANNOTATOR = "Annotator"
PROGRAM = "alphazero"
COLUMNS = 80
# NAGs that judge a move: !, ?, !!, ??, !?, ?!
OF_MOVES = frozenset(range(chess.pgn.NAG_GOOD_MOVE, chess.pgn.NAG_DUBIOUS_MOVE + 1))


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


def title(game: chess.pgn.Game) -> str:
    """The players, for people."""
    names = (game.headers.get(side, "?") for side in ("White", "Black"))
    return shortened(" - ".join(names))


def annotate(game: chess.pgn.Game, assess: Callable[[Line], Assessment], annotator: str) -> Counter[MoveMark]:
    """Annotate the main line; how often each mark was set.

    `assess` is called with its positions in order, before and after each move. Raises GameInputError for a
    game of another variant or from a position that is not legal.
    """
    start, _ = from_python_chess(game.board())
    line, marks = make_line("chess", start), Counter[MoveMark]()
    before = assess(line)
    for node in list(game.mainline()):
        try:
            move = line.text_to_move(node.move.uci())
        except _core.GameError as error:
            raise GameInputError(str(error)) from None
        text = line.move_to_text(move)
        line.push(move)
        after = assess(line)
        if after.mate != 0:
            node.set_eval(chess.engine.PovScore(after.score(), node.turn()))
        if judgement := judge(text, before, after):
            marks[judgement] += 1
            _mark(node, judgement, before)
        before = after
    _sign(game, annotator)
    return marks


def pgn_of(game: chess.pgn.Game) -> str:
    """Its text, with an empty line at the end."""
    return game.accept(chess.pgn.StringExporter(columns=COLUMNS)) + "\n\n"


def _mark(node: chess.pgn.ChildNode, judgement: MoveMark, before: Assessment) -> None:
    """Mark a move, unless someone has, and add what was better, unless the game has it."""
    if not node.nags & OF_MOVES:
        node.nags.add(judgement.nag)
    board, moves = node.parent.board(), []
    for text in before.best_line[:LONGEST_LINE]:
        moves.append(board.parse_uci(text))
        board.push(moves[-1])
    if not moves or node.parent.has_variation(moves[0]):
        return
    turn = node.parent.turn()
    node.parent.add_line(moves)
    node.parent.variation(moves[0]).set_eval(chess.engine.PovScore(before.score(), turn))


def _sign(game: chess.pgn.Game, annotator: str) -> None:
    """Name who annotated, beside those who did before."""
    others = game.headers.get(ANNOTATOR, "").split("; ")
    own = f"{PROGRAM} {annotator}".replace("\\", "\\\\").replace('"', '\\"')
    kept = [other for other in others if other.strip(" ?") and not other.startswith(f"{PROGRAM} ")]
    game.headers[ANNOTATOR] = "; ".join([*kept, shortened(own)])
