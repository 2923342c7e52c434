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
    _copy(config, settings, "simulations", "leaves", "c_init", "fpu_reduction")
    return settings


def self_play_settings(search: SearchConfig, games: SelfPlayConfig, seed: int) -> _core.SelfPlaySettings:
    """The same with noise at the root, and how games are played."""
    settings = _core.SelfPlaySettings()
    rules = search_settings(search)
    _copy(search, rules, "noise_epsilon", "forced_playouts")
    settings.search, settings.seed = rules, seed
    _copy(search, settings, "dirichlet_alpha")
    _copy(games, settings, "full_search_share", "fast_simulations", "temperature", "temperature_plies")
    _copy(games, settings, "opening_plies", "resign_threshold", "resign_playthrough", "max_plies")
    return settings


def _copy(config: object, settings: object, *names: str) -> None:
    for name in names:
        setattr(settings, name, getattr(config, name))
