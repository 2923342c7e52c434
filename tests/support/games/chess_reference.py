"""A second, slow encoder built on python-chess, and random games that reach the rare cases.

Written from lc0's rules (src/neural/encoder.cc), not from ours.
"""

from __future__ import annotations

import random

import chess
import numpy as np
import numpy.typing as npt


def positions_of(board: chess.Board) -> list[chess.Board]:
    """Every position of a game, the start first."""
    replay = board.root()
    positions = [replay.copy(stack=False)]
    for move in board.move_stack:
        replay.push(move)
        positions.append(replay.copy(stack=False))
    return positions


def identity(board: chess.Board) -> str:
    """Equal for positions that repeat each other: placement, side, rights, possible en passant."""
    return board.epd(en_passant="legal")


def slow_planes(positions: list[chess.Board], names: list[str], fill: str) -> npt.NDArray[np.uint8]:
    """u8 [112, 8, 8]: the raw planes of the last position (rule50 as a count). names: their identity()."""
    planes = np.zeros((112, 8, 8), np.uint8)
    current = positions[-1]
    us = current.turn
    for slot in range(8):
        index = len(positions) - 1 - slot
        board = positions[max(index, 0)]
        if index < 0:
            if fill == "no" and (index < -1 or not board.has_legal_en_passant()):
                break
            if fill == "fen_only" and names[0] == identity(chess.Board()):
                break
            if board.has_legal_en_passant():
                board = without_double_step(board)
        for square, piece in board.piece_map().items():
            plane = 13 * slot + (0 if piece.color == us else 6) + piece.piece_type - 1
            rank, file = divmod(square if us == chess.WHITE else chess.square_mirror(square), 8)
            planes[plane, rank, file] = 1
        if index > 0 and names[index] in names[:index]:
            planes[13 * slot + 12] = 1
    for offset, color in ((0, us), (2, not us)):
        planes[104 + offset] = current.has_queenside_castling_rights(color)
        planes[105 + offset] = current.has_kingside_castling_rights(color)
    planes[108] = us == chess.BLACK
    planes[109] = min(current.halfmove_clock, 255)
    planes[111] = 1
    return planes


def without_double_step(board: chess.Board) -> chess.Board:
    """The position with the pawn that can be taken en passant back on its first square."""
    earlier = board.copy(stack=False)
    step = 8 if board.turn == chess.BLACK else -8  # the way that pawn walks
    assert board.ep_square is not None
    earlier.set_piece_at(board.ep_square - step, earlier.remove_piece_at(board.ep_square + step))
    return earlier


def unpack(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """u8 [840] as the core packs it to u8 [112, 8, 8]."""
    bits = np.unpackbits(packed[: 104 * 8], bitorder="little").reshape(104, 8, 8)
    scalars = np.broadcast_to(packed[104 * 8 :, None, None], (8, 8, 8))
    return np.concatenate([bits, scalars])


def core_move(board: chess.Board, move: chess.Move) -> int:
    """A python-chess move in the core's 16 bits: from | to << 6 | promotion << 12, king takes rook."""
    to_square = move.to_square
    if board.is_castling(move) and board.piece_type_at(to_square) != chess.ROOK:
        king_side = to_square > move.from_square
        rank = chess.square_rank(move.from_square)
        to_square = chess.square(7 if king_side else 0, rank)
    promotion = {None: 0, chess.KNIGHT: 1, chess.BISHOP: 2, chess.ROOK: 3, chess.QUEEN: 4}[move.promotion]
    return move.from_square | to_square << 6 | promotion << 12


def policy_text(board: chess.Board, move: chess.Move) -> str:
    """A move as lc0 names it for its policy: seen by the mover, king takes rook, plain knight promotion."""
    bits = core_move(board, move)
    squares = [bits & 63, bits >> 6 & 63]
    if board.turn == chess.BLACK:
        squares = [chess.square_mirror(square) for square in squares]
    suffix = {chess.QUEEN: "q", chess.ROOK: "r", chess.BISHOP: "b"}.get(move.promotion or 0, "")
    return chess.square_name(squares[0]) + chess.square_name(squares[1]) + suffix


def random_move(board: chess.Board, rng: random.Random, take_back: float) -> chess.Move:
    """A legal move; castling, en passant and promotions come more often than by chance.

    take_back: how likely a piece goes back to where it came from, so that positions repeat.
    """
    moves = list(board.legal_moves)
    rare = [
        move
        for move in moves
        if board.is_castling(move) or board.is_en_passant(move) or move.promotion is not None
    ]
    if rare and rng.random() < 0.5:
        return rng.choice(rare)
    if len(board.move_stack) >= 2 and rng.random() < take_back:
        last = board.move_stack[-2]
        back = chess.Move(last.to_square, last.from_square)
        if back in moves:
            return back
    return rng.choice(moves)


def random_start(rng: random.Random) -> chess.Board:
    """The standard start, a Chess960 start, or a position from the middle of a game of either."""
    board = chess.Board() if rng.random() < 0.5 else chess.Board.from_chess960_pos(rng.randrange(960))
    if rng.random() < 0.5:
        return board
    wants_en_passant = rng.random() < 0.5
    for _ in range(80 if wants_en_passant else rng.randrange(1, 60)):
        if not any(board.legal_moves) or (wants_en_passant and board.has_legal_en_passant()):
            break
        board.push(random_move(board, rng, take_back=0.1))
    return chess.Board(board.fen(), chess960=board.chess960)


def random_game(rng: random.Random, max_plies: int, start: chess.Board | None = None) -> chess.Board:
    """A random game from this or a random start; it ends at mate, stalemate or max_plies."""
    board = random_start(rng) if start is None else start
    take_back = rng.choice([0.1, 0.4, 0.8])
    while len(board.move_stack) < max_plies and any(board.legal_moves):
        board.push(random_move(board, rng, take_back))
    return board
