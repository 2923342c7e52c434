"""Openings of the games of a match: random moves, a book of chess (EPD, FEN or PGN), starts of Chess960."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import DataError, GameInputError
from alphazero.base.text import quoted, reason
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line

if TYPE_CHECKING:
    import chess

ATTEMPTS_PER_OPENING = 20  # before openings repeat


@dataclass(frozen=True)
class Opening:
    """A position, None for the game's start, and the moves played from it, as the core writes them.

    chess960: engines have UCI_Chess960 set, and PGN names the variant. The repr, of which --resume keeps a
    digest, does without.
    """

    start: str | None = None
    moves: tuple[str, ...] = ()
    chess960: bool = field(default=False, repr=False)

    def line(self, game: str) -> Line:
        """The line of play after the opening."""
        line = make_line(game, self.start)
        for move in self.moves:
            line.push_text(move)
        return line


def random_openings(game: str, count: int, plies: int, seed: int) -> list[Opening]:
    """`count` positions after `plies` random moves, none over; they repeat only if there are too few."""
    generator = random.Random(seed)
    openings: dict[int, Opening] = {}
    attempts: list[Opening] = []
    while len(openings) < count and len(attempts) < ATTEMPTS_PER_OPENING * count:
        line, moves = make_line(game), []
        while line.num_plies < plies and not line.outcome().over:
            move = generator.choice(line.legal())
            moves.append(line.move_to_text(move))
            line.push(move)
        if not line.outcome().over:
            attempts.append(Opening(None, tuple(moves)))
            openings.setdefault(line.key, attempts[-1])
    return [*openings.values(), *attempts][:count]


def chess960_starts() -> list[Opening]:
    """The 960 start positions of Chess960 in Scharnagl's order."""
    import chess

    return [Opening(chess.Board.from_chess960_pos(number).fen(), chess960=True) for number in range(960)]


def in_order(openings: Sequence[Opening], count: int, shuffled: bool, seed: int) -> list[Opening]:
    """`count` openings in the book's order or shuffled by the seed; repeated where there are too few."""
    order = list(openings)
    if shuffled:
        random.Random(seed).shuffle(order)
    return [order[number % len(order)] for number in range(count)]


BALANCED = Path(__file__).resolve().parents[2] / "assets" / "openings" / "balanced.epd"
NUM_FEN_FIELDS = 6
WHAT = "EPD lines, or PGN games in a file named *.pgn, plain or packed (.gz, .bz2, .zst)"


def read_book(path: Path, plies: int | None = None, *, chess960: bool = False) -> list[Opening]:
    """The openings of a file in order: PGN if it is named *.pgn or, packed, *.pgn.gz and the like; else EPD.

    plies: of each PGN game, None for all. chess960: positions of Chess960, castling rights as X-FEN or
    Shredder-FEN, are openings too. Raises DataError naming file and line.
    """
    from alphazero.data.formats.pgn import SUFFIXES, text_lines

    if path.suffix.lower() == ".bin":
        raise DataError(f"{path}: Polyglot books have moves of positions and no lines; expected {WHAT}")
    text = "\n".join(text_lines(path, "openings (EPD or PGN)"))
    is_pgn = path.name.lower().endswith(SUFFIXES)
    boards = _boards_of_pgn(path, text, plies) if is_pgn else _boards_of_epd(path, text)
    openings = [_checked(board, where, chess960) for where, board in boards]
    if not openings:
        raise DataError(f"{path}: no openings; expected {WHAT}")
    return openings


def _boards_of_epd(path: Path, text: str) -> Iterator[tuple[str, chess.Board]]:
    """Each position, and how messages name it."""
    import chess

    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        board, where = chess.Board(), f"{path}:{number}: {quoted(line)}"
        try:
            if len(line.split()) == NUM_FEN_FIELDS and ";" not in line:
                board.set_fen(line)
            else:
                board.set_epd(line)
        except ValueError as error:
            raise DataError(f"{where}: expected a position as EPD or FEN ({reason(error)})") from error
        yield where, board


def _boards_of_pgn(path: Path, text: str, plies: int | None) -> Iterator[tuple[str, chess.Board]]:
    """Each game after its plies, and how messages name it."""
    from alphazero.play.pgn.reading import games_of_text

    for pgn in games_of_text(text):
        where = f"{path}:{pgn.line}"
        if pgn.fault:
            raise DataError(f"{where}: {pgn.fault}")
        board = pgn.game.board()
        for move in list(pgn.game.mainline_moves())[:plies]:
            board.push(move)
        yield where, board


def _checked(board: chess.Board, where: str, chess960: bool) -> Opening:
    """The board as an opening. Raises DataError where the game is over or the position illegal."""
    start = board.root()
    start.chess960 = chess960
    if not start.is_valid():
        start.chess960 = True
        hint = " (Chess960: --variant fischerandom)" if start.is_valid() else ""
        raise DataError(f"{where}: expected a legal position{'' if chess960 else ' of standard chess'}{hint}")
    if board.is_game_over() or board.is_repetition(3) or board.halfmove_clock >= 100:
        raise DataError(f"{where}: the game is over; expected a game in progress")
    fen = start.fen()
    moves = tuple(move.uci() for move in board.move_stack)
    opening = Opening(None if fen == type(board).starting_fen else fen, moves, chess960)
    try:
        opening.line("chess")
    except GameInputError as error:
        raise DataError(f"{where}: {error}") from error
    return opening
