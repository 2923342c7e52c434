"""Forced mates by brute force, with python-chess: another program than the one under test."""

from __future__ import annotations

from collections.abc import Iterator

import chess

from alphazero.games.core_types import Line


def forces_mate(line: Line, mate: int) -> bool:
    """Whether the side to move mates within `mate` moves, or (below 0) is mated within -mate moves."""
    board = chess.Board(str(line))
    return any(mating_moves(board, mate)) if mate > 0 else is_mated(board, -mate)


def mating_moves(board: chess.Board, moves: int) -> Iterator[chess.Move]:
    """The moves that force mate in at most `moves` moves; checks first: most mates begin with one."""
    for move in sorted(board.legal_moves, key=lambda move: not board.gives_check(move)):
        board.push(move)
        found = is_mated(board, moves - 1)
        board.pop()
        if found:
            yield move


def is_mated(board: chess.Board, moves: int) -> bool:
    """Whether the side to move is mated, now or in at most `moves` moves of the other side."""
    answers = list(board.legal_moves)
    if moves < 1 or not answers:
        return board.is_checkmate()
    for answer in answers:
        board.push(answer)
        found = any(mating_moves(board, moves))
        board.pop()
        if not found:
            return False
    return True
