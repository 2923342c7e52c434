"""A game that was played in the terminal, and how it is written as PGN."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from alphazero.api.board import Board
from alphazero.errors import GameInputError

CHESS = "chess"


@dataclass(frozen=True)
class PlayedGame:
    """person: which side the person has, first or second. result: as in PGN, '*' where the game goes on."""

    board: Board
    person: str
    network: str
    result: str
    termination: str


def require_chess(game: str, place: str) -> None:
    """Raise GameInputError for a game that PGN has no form for."""
    if game != CHESS:
        raise GameInputError(f"{place}: PGN is for chess; this is {game}")


def to_pgn(game: PlayedGame) -> str:
    """The game as PGN, with a blank line after it."""
    import chess
    import chess.pgn

    require_chess(game.board.game, "pgn")
    start = game.board.start
    board = chess.Board(chess960=True)
    if start is not None:
        board.set_fen(start)
    is_960 = start is not None and board.has_chess960_castling_rights()
    board.chess960 = is_960
    record = chess.pgn.Game()
    record.setup(board)
    players = ("human", f"alphazero {game.network}")
    white, black = players if game.person == "first" else players[::-1]
    headers = {
        "Event": "alphazero play",
        "Date": time.strftime("%Y.%m.%d"),
        "White": white,
        "Black": black,
        "Result": game.result,
        "Termination": game.termination,
    }
    for name, value in headers.items():
        if value:
            record.headers[name] = value
    node: chess.pgn.GameNode = record
    for text in game.board.moves:
        node = node.add_variation(node.board().parse_uci(text))
    return f"{record}\n\n"


def add_to_pgn(path: Path, game: PlayedGame) -> None:
    """Add the game to the end of a file. Raises GameInputError where it cannot be written."""
    text = to_pgn(game)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise GameInputError(f"{path}: cannot be written: {error.strerror}") from error
