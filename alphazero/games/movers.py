"""Who made each move of a game from the start on: in some games a player moves several times in a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from alphazero.games.registry import get_game, make_line


def first_player_moves(game: str, moves: Sequence[int]) -> npt.NDArray[np.bool_]:
    """For each of the moves whether the first player made it."""
    if get_game(game).core.line.ALTERNATES:
        even: npt.NDArray[np.bool_] = np.arange(len(moves)) % 2 == 0
        return even
    line = make_line(game)
    made = np.zeros(len(moves), np.bool_)
    for ply, move in enumerate(moves):
        made[ply] = line.first_player_to_move
        line.push(int(move))
    return made
