"""Moves as people write them: SAN in chess, read beside the game's own texts; the nearest one to a slip.

The core writes SAN; python-chess, which also reads it as people write it, is imported for that.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, SupportsIndex

from alphazero.base.errors import GameInputError
from alphazero.base.text import as_utf8, quoted
from alphazero.games.core_types import Line
from alphazero.games.outside.names import is_outside
from alphazero.games.outside.rules import METHODS
from alphazero.games.registry import CHESS

if TYPE_CHECKING:
    import chess

# By the result for the first player; None: unknown.
RESULTS = {1: "1-0", 0: "1/2-1/2", -1: "0-1", None: "*"}
_MOVE_NUMBER = re.compile(r"^\d+\.+")  # before a move of PGN
LONGEST_WORD = 20  # of what may have been meant as a move
NEAR = 0.4  # of difflib: e5 is near e4, and zz is near nothing
# What may follow a move in SAN and changes nothing: check, mate, praise and blame.
_REMARKS = re.compile(r"[+#!?]+$")


def move_text(line: Line, move: int) -> str:
    """The move as people write it: SAN in chess, else the game's own text (a column, a square)."""
    return move_texts(line, [move])[0]


def move_texts(line: Line, moves: Sequence[int]) -> list[str]:
    """`moves`, played one after the other from the end of the line, as people write them."""
    if line.NAME != CHESS:
        return own_texts(line, moves)
    import alphazero._core as _core

    position, texts = _core.ChessPosition(str(line)), []
    for move in moves:
        texts.append(position.san(move))
        position.push(move)
    return texts


def own_texts(line: Line, moves: Sequence[int]) -> list[str]:
    """The same in the game's own texts (chess: UCI)."""
    line, texts = line.copy(), []
    for move in moves:
        texts.append(line.move_to_text(move))
        line.push(move)
    return texts


def read_move(line: Line, text: str) -> int:
    """The legal move that a text means: SAN or UCI in chess, the game's own text elsewhere.

    In games of OpenSpiel and Python files also the number of an action. Raises GameInputError, one line with
    the nearest legal move, for anything else.
    """
    texts = {line.move_to_text(move): move for move in line.legal()}
    text = as_utf8(text)
    word = text.strip()
    if word in texts:
        return texts[word]
    known = texts
    spellings: list[Callable[[str], str]] = [str.lower]
    if is_outside(line.NAME):
        known = {str(move): move for move in line.legal()} | texts
    elif line.NAME == CHESS:
        import alphazero._core as _core

        with suppress(_core.GameError):  # as PGN files write it; Nce7 also where only one knight may go to e7
            return _core.ChessPosition(str(line)).parse_san(word)
        board = _board(line)
        moves = {board.parse_uci(uci): move for uci, move in texts.items()}
        with suppress(ValueError, KeyError):  # castling as the other of UCI's two ways has it (e1g1, e1h1)
            return moves[board.parse_uci(word.lower())]
        known = {board.san(parsed): move for parsed, move in moves.items()}
        # nf3, o-o, E4; not bxc3 where both a bishop and a pawn take there
        spellings = [_plain, lambda san: _plain(san).lower()]
    for spelling in spellings:
        alike = {move for other, move in known.items() if spelling(other) == spelling(word)}
        if len(alike) == 1:
            return alike.pop()
    ways = [san for san in known if _without_origin(san) == _without_origin(word)]
    if line.NAME == CHESS and len(ways) > 1 and word:
        raise GameInputError(f"{quoted(text)}: is {' or '.join(ways)}; expected one of them")
    if not known:
        raise GameInputError(f"{quoted(text)}: no move; the game is over")
    near = difflib.get_close_matches(word[:LONGEST_WORD], [*known, *texts], n=1, cutoff=NEAR)
    hint = f"did you mean {near[0]}?" if near else f"expected a legal move, such as {next(iter(known))}"
    raise GameInputError(f"{quoted(text)}: no legal move here; {hint}")


def legal_move(line: Line, move: str | int | chess.Move) -> int:
    """The legal move that a text means, as read_move, or a number of an action in games outside the core.

    Or one of python-chess in chess. Raises GameInputError.
    """
    if is_outside(line.NAME) and isinstance(move, SupportsIndex):
        if (number := operator.index(move)) not in line.legal():
            raise GameInputError(f"{number}: no legal action here")
        return number
    if not isinstance(move, str):
        import chess

        if not isinstance(move, chess.Move):
            raise GameInputError(f"a move of type {type(move).__name__}: expected a text or a chess.Move")
        move = move.uci()
    return read_move(line, move)


def play_moves(line: Line, texts: Sequence[str], what: str = "move") -> list[int]:
    """Play texts that `read_move` understands, and return the moves.

    Raises GameInputError naming the number of the faulty one.
    """
    played = []
    for number, text in enumerate(texts, start=1):
        try:
            played.append(read_move(line, text))
        except GameInputError as error:
            raise GameInputError(f"{what} {number}: {error}") from None
        line.push(played[-1])
    return played


def split_moves(line: Line, texts: Sequence[str]) -> list[str]:
    """The moves of texts such as '1. e4 e5 2. Nf3', and in games whose moves are one sign each, '4453'."""
    words = [_MOVE_NUMBER.sub("", word) for text in texts for word in text.split()]
    if all(len(line.move_to_text(move)) == 1 for move in line.legal()):
        return list("".join(words))
    return [word for word in words if word]


def from_python_chess(board: object) -> tuple[str, list[str]]:
    """python-chess's board as the FEN it began with and the moves since, as UCI.

    Raises GameInputError for an object of another type, and for the board of a variant.
    """
    import chess

    if not isinstance(board, chess.Board):
        kind = type(board).__name__
        raise GameInputError(f"a position of type {kind}: expected a text, an az.Board or a chess.Board")
    if board.uci_variant != CHESS:
        raise GameInputError(f"a board of {board.uci_variant}: expected {CHESS}")
    return board.root().fen(), [move.uci() for move in board.move_stack]


def history_of(state: object) -> list[int] | None:
    """The actions that led to a state of rules outside the core; None where it has no method history().

    Raises GameInputError for any other object.
    """
    if missing := [name for name in METHODS if name != "clone" and not callable(getattr(state, name, None))]:
        raise GameInputError(
            f"a position of type {type(state).__name__}: has no method {missing[0]}; expected a state of the "
            "game, a text such as 4,0,8, or a pair of a text and moves"
        )
    history = getattr(state, "history", None)
    return [int(action) for action in history()] if callable(history) else None


def _plain(san: str) -> str:
    """SAN without what may be left out: check, praise, a promotion's sign; castling with the letter O."""
    return _REMARKS.sub("", san.strip()).replace("0", "O").replace("=", "").replace("o-o", "O-O")


def _without_origin(san: str) -> str:
    """'Nbd2' as 'Nd2': a piece and where it goes."""
    match = re.fullmatch(r"([NBRQK])[a-h]?[1-8]?x?([a-h][1-8])", _plain(san))
    return match[1] + match[2] if match else _plain(san)


def _board(line: Line) -> chess.Board:
    """The position at the end of a line of chess; castling is read in either of UCI's ways."""
    import chess

    return chess.Board(str(line), chess960=True)
