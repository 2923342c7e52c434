"""Test suites of chess positions (EPD): moves to find and to avoid, and who does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import chess

import alphazero._core as _core
from alphazero.base.errors import DataError, GameInputError
from alphazero.base.log import Work
from alphazero.base.text import quoted, reason, shortened
from alphazero.data.formats.pgn import text_lines
from alphazero.games.core_types import Line
from alphazero.games.notation import move_text
from alphazero.games.registry import make_line
from alphazero.play.matches.players import ChooseMoves
from alphazero.search.game_trees import GameTrees
from alphazero.search.tree_search import SearchLimits

AT_ONCE = 64  # trees that share batches
# The counters of a FEN, which some suites have; EPD has operations for them.
_COUNTERS = re.compile(r"((?:\S+\s+){4})(\d+)\s+(\d+)(?=\s|$)")


@dataclass(frozen=True)
class EpdPosition:
    """name: its id, else file and line. best: the moves of bm; any where there are none. avoid: of am.

    wanted: both, as SAN.
    """

    name: str
    fen: str
    best: frozenset[int]
    avoid: frozenset[int]
    wanted: str

    def line(self) -> Line:
        """The position to play from."""
        return make_line("chess", self.fen)

    def is_solved_by(self, move: int) -> bool:
        """Whether it is one of the best, if these are known, and none to avoid."""
        return move not in self.avoid and (not self.best or move in self.best)


@dataclass(frozen=True)
class EpdAnswer:
    """move: as SAN. within: the nodes from which on the search's best move was a solution, to its end.

    None where it was none in the end, and without a search.
    """

    move: str
    solved: bool
    within: int | None = None


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
        moves, wanted = {}, []
        for opcode in ("bm", "am"):
            operand = operations.get(opcode)
            given = operand if isinstance(operand, list) else []
            moves[opcode] = frozenset(line.text_to_move(move.uci()) for move in given)
            if given:
                wanted.append(" ".join([opcode, *map(board.san, given)]))
    except (GameInputError, ValueError) as error:
        raise DataError(f"{where}: {reason(error)}; expected a position of EPD") from error
    if line.outcome().over:
        raise DataError(f"{where}: {quoted(fen)}: the game is over; expected a position with a move to find")
    if not wanted:
        raise DataError(f"{where}: {quoted(text)}: expected bm or am with a move, as 'bm Nf3;'")
    name = shortened(str(operations.get("id") or name))
    return EpdPosition(name, fen, moves["bm"], moves["am"], "; ".join(wanted))


def answers_alone(positions: Sequence[EpdPosition], player: ChooseMoves) -> list[EpdAnswer]:
    """Of a player without a search."""
    lines = [position.line() for position in positions]
    return [
        EpdAnswer(move_text(line, move), position.is_solved_by(move))
        for position, line, move in zip(positions, lines, player(lines), strict=True)
    ]


def answers_of_search(
    positions: Sequence[EpdPosition], trees: GameTrees, nodes: int, work: Work
) -> list[EpdAnswer]:
    """Of the engine's search, many positions at a time; `work` counts nodes."""
    right_since: dict[int, int | None] = {}
    seen: dict[int, int] = {}

    def watch(number: int, view: _core.SearchView) -> None:
        is_right = positions[number].is_solved_by(view.moves[0].move)
        since = right_since.get(number)
        right_since[number] = (since or view.nodes) if is_right else None
        work.done += view.nodes - seen.get(number, 0)
        seen[number] = view.nodes

    answers = []
    for begin in range(0, len(positions), AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, len(positions)))
        lines = {number: positions[number].line() for number in numbers}
        views = trees.search(lines, SearchLimits(nodes=nodes), watch)
        for (number, line), view in zip(lines.items(), views, strict=True):
            watch(number, view)  # a proof may have ended it after its last batch
            work.done += nodes - view.nodes
            trees.leave(number)
            move, within = view.moves[0].move, right_since[number]
            answers.append(EpdAnswer(move_text(line, move), within is not None, within))
    return answers
