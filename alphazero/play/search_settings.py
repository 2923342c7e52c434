"""The core's search settings from the run's."""

from __future__ import annotations

import alphazero._core as _core
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig

_ALGORITHMS = {"puct": _core.SearchAlgorithm.PUCT, "gumbel": _core.SearchAlgorithm.GUMBEL}


def search_settings(config: SearchConfig) -> _core.SearchSettings:
    """The rules of docs/search.md with these numbers, without noise: a search that plays its best.

    csrc/search/settings.hpp has the constants of the two papers.
    """
    settings = _core.SearchSettings()
    settings.algorithm = _ALGORITHMS[config.algorithm]
    settings.simulations = config.simulations
    settings.leaves = config.leaves
    settings.c_init = config.c_init
    settings.fpu_reduction = config.fpu_reduction
    return settings


def self_play_settings(search: SearchConfig, games: SelfPlayConfig, seed: int) -> _core.SelfPlaySettings:
    """The same with noise at the root, and how games are played."""
    settings = _core.SelfPlaySettings()
    rules = search_settings(search)
    rules.noise_epsilon = search.noise_epsilon
    rules.forced_playouts = search.forced_playouts
    settings.search = rules
    settings.seed = seed
    settings.full_search_share = games.full_search_share
    settings.fast_simulations = games.fast_simulations
    settings.dirichlet_alpha = search.dirichlet_alpha
    settings.temperature = games.temperature
    settings.temperature_plies = games.temperature_plies
    settings.opening_plies = games.opening_plies
    settings.start_share = games.regret_starts
    settings.resign_threshold = games.resign_threshold
    settings.resign_playthrough = games.resign_playthrough
    settings.max_plies = games.max_plies
    return settings
