"""The training window of self-play: the newest games, more of them the more were played."""

from __future__ import annotations

import numpy as np

from alphazero.data.sampler import Window
from alphazero.data.store import GameStore


def window_size(positions: int, minimum: int, alpha: float, beta: float) -> int:
    """Positions of the window when `positions` have been made.

    KataGo's power law (Wu 2019, arXiv:1902.10565, appendix C): c (1 + beta ((n / c)^alpha - 1) / alpha) with
    c the smallest window: slope beta where it begins, growing ever more slowly.
    """
    if positions <= minimum:
        return minimum
    growth: float = (positions / minimum) ** alpha - 1
    return round(minimum * (1 + beta * growth / alpha))


def newest_games(store: GameStore, size: int) -> Window:
    """The newest whole games, in the store's order, that together hold at least `size` positions, or all."""
    whole = Window.of_stores([store])
    last = whole.num_samples
    first_sample = max(0, last - size)
    first_game = int(np.searchsorted(whole.ply_offset, first_sample, side="right")) - 1
    return whole.games_from(max(0, first_game))
