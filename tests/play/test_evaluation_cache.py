"""The cache of evaluations in self-play: the same games for fewer evaluations, whatever it holds."""

import functools

import pytest
import torch

import alphazero._core as _core
from alphazero.base.errors import ConfigError
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.play import lanes as games
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, new_cache, new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.network.evaluator_nets import trained_like

LANES = 8


# A ring of a few thousand words: some hundred positions.
TINY_BYTES = 30_000


@functools.cache
def evaluator(game: str) -> NetworkEvaluator:
    network = trained_like(game, blocks=1, filters=8).eval()
    return NetworkEvaluator(network, torch.device("cpu"), "fp32", 8)


def played(game: str, leaves: int, threads: int = 1, cache: _core.EvaluationCache | None = None) -> Played:
    search = SearchConfig(simulations=16, leaves=leaves, forced_playouts=2.0)
    settings = self_play_settings(search, SelfPlayConfig(opening_plies=3, max_plies=9), seed=3)
    lanes = [new_lane(number) for number in range(LANES)]
    return play(game, settings, lanes, 9, evaluator(game), cache=cache, num_threads=threads)


@functools.cache
def without_cache(game: str, leaves: int) -> Played:
    return played(game, leaves)


def bits(of: Played) -> tuple[bytes, bytes]:
    """Every column of every game."""
    return games.to_bytes(games.to_batch(of.finished)), games.to_bytes(games.to_batch(of.under_way))


@pytest.mark.parametrize(("leaves", "threads"), [(1, 1), (4, 3)])
@pytest.mark.parametrize("game", ["connect4", "chess"])
def test_games_are_the_same_to_the_bit_with_a_cache(game: str, leaves: int, threads: int):
    expected = without_cache(game, leaves)
    assert expected.cached == 0
    for known in (new_cache(8), _core.EvaluationCache(TINY_BYTES)):
        found = played(game, leaves, threads, known)
        assert bits(found) == bits(expected)
        assert found.cached + found.evaluations == expected.evaluations
        assert found.cached > 0


def test_what_was_played_before_with_the_same_weights_is_not_evaluated_again():
    cache = new_cache(8)
    first = played("connect4", 1, cache=cache)
    again = played("connect4", 1, cache=cache)
    assert (again.evaluations, again.batches) == (0, 0)
    assert again.cached == first.cached + first.evaluations
    cache.clear()
    assert played("connect4", 1, cache=cache).evaluations == first.evaluations


def test_a_cache_of_no_size_is_none():
    assert new_cache(0) is None


def test_a_cache_that_no_machine_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="--evaluation-cache 1099511627776: "):
        new_cache(2**40)
