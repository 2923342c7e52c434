"""The phase of the game that a position belongs to, told from its packed planes alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from alphazero.games.spec import GameSpec

# Shapes: B positions, N bytes of a packed position, P bit planes.

CHESS = "chess"
NUM_PHASES = 3
# Chess: knights, bishops, rooks and queens of both sides, of which a game begins with 14.
_PIECE_PLANES = (1, 2, 3, 4, 7, 8, 9, 10)
_OPENING_PIECES, _MIDDLEGAME_PIECES = 12, 7
# Other games: the planes of the two sides' stones.
_STONE_PLANES = (0, 1)


def phase_names(spec: GameSpec) -> tuple[str, str, str]:
    """What the phases are called, in order."""
    if spec.name == CHESS:
        return ("opening", "middlegame", "endgame")
    return ("first third", "second third", "last third")


def phase_rule(spec: GameSpec) -> str:
    """How they are told apart, for people."""
    if spec.name == CHESS:
        return (
            f"opening: {_OPENING_PIECES} or more of the 14 knights, bishops, rooks and queens are on the "
            f"board; endgame: fewer than {_MIDDLEGAME_PIECES}"
        )
    return "thirds of the board's squares that hold a stone"


def phases_of(packed_BN: npt.NDArray[np.uint8], spec: GameSpec) -> npt.NDArray[np.int64]:
    """0, 1 or 2 for each position."""
    planes_BP8 = packed_BN[:, : 8 * spec.num_bit_planes].reshape(len(packed_BN), spec.num_bit_planes, 8)
    chosen = _PIECE_PLANES if spec.name == CHESS else _STONE_PLANES
    count_B = np.unpackbits(planes_BP8[:, chosen], axis=2).sum(axis=(1, 2)).astype(np.int64)
    if spec.name == CHESS:
        edges = (-_OPENING_PIECES, -_MIDDLEGAME_PIECES)
        phase_B: npt.NDArray[np.int64] = np.searchsorted(edges, -count_B)
        return phase_B
    squares = spec.board_height * spec.board_width
    phase_B = np.minimum(count_B * NUM_PHASES // squares, NUM_PHASES - 1)
    return phase_B
