"""Positions of the newest games at which the next ones begin: there search and result disagreed."""

from __future__ import annotations

import numpy as np

from alphazero.data.store.store import GameStore
from alphazero.games.lines import first_player_moves

NUM_STARTS = 1024


def regretted_positions(store: GameStore, seed: int) -> list[list[int]]:
    """NUM_STARTS positions of the store's last shard, as moves from the usual start; a position may repeat.

    They are drawn among those with a full search by regret, |root_q - z|, from 0 to 2: the search's value and
    the result, both for the side to move (regret-guided search control, arXiv 2602.20809). None where no
    search was wrong.
    """
    shard = store.shards[-1]
    if shard.search is None:
        return []
    regret = np.zeros(shard.num_plies)
    for game in range(shard.num_games):
        plies = slice(*shard.moves_offset[game : game + 2])
        is_first = first_player_moves(store.manifest.game_now, shard.moves[plies].tolist())
        z = np.where(is_first, shard.result[game], -shard.result[game])
        regret[plies] = np.abs(shard.search.root_q.values[plies] - z)
    regret *= shard.search.is_trained_on
    if not regret.any():
        return []
    drawn = np.random.default_rng(seed).choice(len(regret), NUM_STARTS, p=regret / regret.sum())
    begin = shard.moves_offset[np.searchsorted(shard.moves_offset, drawn, side="right") - 1]
    return [shard.moves[first:ply].tolist() for first, ply in zip(begin, drawn, strict=True)]
