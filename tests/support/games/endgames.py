"""Endgames with results known without tablebases: king and pawn by retrograde analysis, king and rook."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache

import chess
import numpy as np

from tests.support.paths import SHARED_DATA

SYZYGY = SHARED_DATA / "syzygy"
WHY_NOT = f"no Syzygy tablebases of 3 and 4 pieces in {SYZYGY}"


def has_tables() -> bool:
    return (SYZYGY / "KRvK.rtbz").exists()


@cache
def _king_and_pawn() -> tuple[np.ndarray, np.ndarray]:
    """bool [pawn, white king, black king]: White, who has the pawn, wins when he moves; when Black moves."""
    near = np.array([[0 < chess.square_distance(a, b) <= 1 for b in range(64)] for a in range(64)])
    wins, loses = np.zeros((2, 64, 64, 64), bool)
    square = np.arange(64)
    for pawn in range(55, 7, -1):
        attacked = np.isin(square, [int(each) for each in chess.SquareSet(chess.BB_PAWN_ATTACKS[1][pawn])])
        apart = ~near & ~np.eye(64, dtype=bool)
        white = apart & (square != pawn)[:, None] & (square != pawn)[None, :]  # squares of both kings
        pushes = np.zeros((64, 64), bool)
        free = (square != pawn + 8)[:, None] & (square != pawn + 8)[None, :]
        if pawn < 48:
            pushes = free & loses[pawn + 8]
            if pawn < 16:
                free2 = (square != pawn + 16)[:, None] & (square != pawn + 16)[None, :]
                pushes |= free & free2 & loses[pawn + 16]
        else:  # Stockfish's bitbase.cpp: the new queen stands safe, or beside her king
            pushes = free & (~near[pawn + 8][None, :] | near[pawn + 8][:, None])
        # Black's king goes where nothing attacks, and takes a pawn that is not protected.
        enters = apart & ~attacked[None, :]
        takes = enters & (square == pawn)[None, :]
        while True:
            before = wins[pawn].sum() + loses[pawn].sum()
            wins[pawn] = white & (pushes | (near.astype(int) @ (white & loses[pawn]) > 0))
            safe = enters & ~wins[pawn] | takes
            has_move = enters.astype(int) @ near > 0
            escapes = safe.astype(int) @ near > 0
            loses[pawn] = white & has_move & ~escapes
            if wins[pawn].sum() + loses[pawn].sum() == before:
                break
        wins[pawn] &= ~attacked[None, :]  # Black's king cannot be left in check
    return wins, loses


def number_of_wins() -> int:
    """In the bitbase: pawns of the files a to d, either side to move."""
    wins, loses = _king_and_pawn()
    left = [square for square in range(64) if chess.square_file(square) < 4]
    return int(wins[left].sum() + loses[left].sum())


def pawn_wins(board: chess.Board) -> bool:
    """Whether the side with the pawn wins king and pawn against king, or has done more than that already."""
    if not board.pawns:
        return not board.is_stalemate() and bool(board.queens | board.rooks) and not _takes(board)
    (pawn,) = board.pieces(chess.PAWN, chess.WHITE) or board.pieces(chess.PAWN, chess.BLACK)
    if board.color_at(pawn) is chess.BLACK:
        return pawn_wins(board.mirror())
    kings = board.king(chess.WHITE), board.king(chess.BLACK)
    return bool(_king_and_pawn()[0 if board.turn else 1][pawn][kings])


def _takes(board: chess.Board) -> bool:
    """Whether the side to move can take what its opponent has."""
    return any(board.is_capture(move) for move in board.legal_moves)


def rook_wins(board: chess.Board) -> bool:
    """Whether the side with the rook wins: it does unless the rook is lost at once, or it is stalemate."""
    return bool(board.rooks) and not board.is_stalemate() and not _takes(board)


def positions(
    pieces: str, seed: int, accepts: Callable[[chess.Board], bool], white_moves: bool
) -> Iterator[chess.Board]:
    """Random legal positions of these pieces ('KRk') that `accepts` takes, half of them with colours changed.

    white_moves: whether the side of the capital letters is to move.
    """
    rng = random.Random(seed)
    while True:
        board = chess.Board(None)
        for sign, square in zip(pieces, rng.sample(range(64), len(pieces)), strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(sign))
        board.turn = white_moves
        if not board.is_valid() or board.is_game_over() or not accepts(board):
            continue
        yield board if rng.random() < 0.5 else board.mirror()
