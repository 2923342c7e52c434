"""Forced mates by brute force, with python-chess: another program than the one under test."""

from __future__ import annotations

import chess

from alphazero.games.core_types import Line


def forces_mate(line: Line, mate: int) -> bool:
    """Whether the side to move mates within `mate` moves, or (below 0) is mated within -mate moves."""
    board = chess.Board(str(line))
    return _mates(board, 2 * mate - 1) if mate > 0 else _is_mated(board, -2 * mate)


def _mates(board: chess.Board, plies: int) -> bool:
    # Checks first: most mates begin with one.
    for move in sorted(board.legal_moves, key=lambda move: not board.gives_check(move)):
        board.push(move)
        found = board.is_checkmate() or (plies > 1 and _is_mated(board, plies - 1))
        board.pop()
        if found:
            return True
    return False


def _is_mated(board: chess.Board, plies: int) -> bool:
    if board.is_checkmate():
        return True
    moves = list(board.legal_moves)
    if plies <= 0 or not moves:
        return False
    for move in moves:
        board.push(move)
        found = _mates(board, plies - 1)
        board.pop()
        if not found:
            return False
    return True
