"""The training window of self-play: the newest games, more of them the more were played."""

from __future__ import annotations

import numpy as np

from alphazero.data.sampling.window import Window, counting_plies
from alphazero.data.store.store import GameStore


def window_size(positions: int, minimum: int, alpha: float, beta: float) -> int:
    """Positions of the window when `positions` have been made.

    KataGo's power law (Wu 2019, arXiv:1902.10565, appendix C): c (1 + beta ((n / c)^alpha - 1) / alpha) with
    c the smallest window: slope beta where it begins, growing ever more slowly. Wu: alpha 0.75, beta 0.4.
    """
    if positions <= minimum:
        return minimum
    growth: float = (positions / minimum) ** alpha - 1
    return round(minimum * (1 + beta * growth / alpha))


def newest_games(store: GameStore, size: int) -> Window:
    """The newest whole games, in the store's order, that together hold at least `size` positions, or all.

    It looks into the newest shards alone, as many as that takes.
    """
    num_shards = num_positions = 0
    while num_positions < size and num_shards < len(store.shards):
        num_shards += 1
        num_positions += int(counting_plies(store.shards[-num_shards]).lengths.sum())
    first_shard = len(store.shards) - num_shards
    window = Window.of_shards(
        store.manifest.game,
        store.shards[first_shard:],
        [entry.sha256 for entry in store.manifest.shards[first_shard:]],
    )
    surplus = max(0, window.num_samples - size)
    # The game that holds position `surplus` is the last one that must stay.
    return window.games_from(int(np.searchsorted(window.ply_offset, surplus, side="right")) - 1)
