"""A game of chess as PGN: of a match, and of a person against a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import chess
import chess.pgn

COLUMNS = 100


def pgn_text(
    start: str | None,
    moves: Sequence[str],
    headers: Mapping[str, str],
    comments: Sequence[str] = (),
    reason: str = "",
    *,
    chess960: bool = False,
) -> str:
    """The text, with an empty line at the end. moves: as UCI, from `start` (FEN; None: the usual one).

    chess960: named as the variant, which castling rights of other squares are in any case.

    Headers without a value are left out. comments: of the moves. reason: why the game ended,
    for the last comment.
    """
    board = chess.Board(start or chess.STARTING_FEN, chess960=True)
    board.chess960 = chess960 or board.has_chess960_castling_rights()
    game = chess.pgn.Game()
    game.setup(board)
    for name, value in headers.items():
        if value:
            game.headers[name] = value.replace("\\", "\\\\").replace('"', '\\"')  # as PGN has it
    node: chess.pgn.GameNode = game
    for move, comment in zip_longest(moves, comments, fillvalue=""):
        node = node.add_variation(chess.Move.from_uci(move), comment=comment)
    node.comment = ", ".join(filter(None, (node.comment, reason)))
    return game.accept(chess.pgn.StringExporter(columns=COLUMNS)).strip() + "\n\n"
