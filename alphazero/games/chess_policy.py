"""Where lc0's 1858 policy moves lie in what its policy heads give: 73 planes, or attention between squares.

Sources: the order of lczero-training tf/lc0_az_policy_map.py, of kConvPolicyMap in lc0's
src/neural/tables/policy_map.h, and of kAttnPolicyMap in attention_policy_map.h beside it. Everything is
seen by the mover: rank 0 is its first rank.
"""

from __future__ import annotations

from collections.abc import Sequence

# (files, ranks) of one step: N, NE, E, SE, S, SW, W, NW.
_QUEEN_DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
_KNIGHT_JUMPS = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))
_PROMOTION_FILES = (-1, 0, 1)  # NW, N, NE
_PROMOTION_PIECES = "rbq"  # a knight promotion is the plain move
_PIECES_OF_ATTENTION = "qrb"

NUM_POLICY_PLANES = 73  # 8 directions x 7 steps, 8 knight jumps, 3 directions x 3 promotions


def _planes_by_vector() -> dict[tuple[int, int], int]:
    vectors = [(files * steps, ranks * steps) for files, ranks in _QUEEN_DIRECTIONS for steps in range(1, 8)]
    return {vector: plane for plane, vector in enumerate([*vectors, *_KNIGHT_JUMPS])}


def policy_map(moves: Sequence[str]) -> tuple[int, ...]:
    """Flat index plane * 64 + from-square of each policy move.

    moves: the policy moves in index order from white's side, such as 'e2e4' or 'a7b8q'.
    """
    planes = _planes_by_vector()
    flat = []
    for move in moves:
        from_file, from_rank = ord(move[0]) - ord("a"), int(move[1]) - 1
        files, ranks = ord(move[2]) - ord("a") - from_file, int(move[3]) - 1 - from_rank
        if len(move) == 5:
            direction, piece = _PROMOTION_FILES.index(files), _PROMOTION_PIECES.index(move[4])
            plane = 64 + direction * len(_PROMOTION_PIECES) + piece
        else:
            plane = planes[files, ranks]
        flat.append(plane * 64 + from_rank * 8 + from_file)
    return tuple(flat)


def chess_policy_map() -> tuple[int, ...]:
    """The flat index of each of the core's policy moves."""
    from alphazero import _core

    return policy_map(_core.chess_policy_moves())


def attention_map(moves: Sequence[str]) -> tuple[int, ...]:
    """GameSpec.attention_map of these policy moves; see policy_map."""
    places = []
    for move in moves:
        from_file, from_rank = ord(move[0]) - ord("a"), int(move[1]) - 1
        to_file, to_rank = ord(move[2]) - ord("a"), int(move[3]) - 1
        if len(move) == 5:
            piece = _PIECES_OF_ATTENTION.index(move[4])
            places.append(64 * 64 + (from_file * 8 + to_file) * 3 + piece)
        else:
            places.append((from_rank * 8 + from_file) * 64 + to_rank * 8 + to_file)
    return tuple(places)


def chess_attention_map() -> tuple[int, ...]:
    """Where the attention head has each of the core's policy moves."""
    from alphazero import _core

    return attention_map(_core.chess_policy_moves())
