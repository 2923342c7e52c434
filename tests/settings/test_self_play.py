"""Lanes and the budget of a round, chosen when a run begins."""

import pytest

from alphazero.base.errors import ConfigError
from alphazero.settings.load import load_config
from alphazero.settings.scope import kept_settings
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig, settled

GPU = SelfPlayConfig(
    evaluation_batch=256, full_search_share=0.25, steps_per_generation=125, window_minimum=250_000
)


@pytest.mark.parametrize(("ranks", "lanes"), [(1, 512), (2, 1024), (8, 4096)])
def test_every_rank_has_lanes_for_two_batches_and_rounds_of_24_full_searches(ranks: int, lanes: int):
    chosen = settled(GPU, SearchConfig(), batch_size=4096, num_ranks=ranks)
    assert (chosen.lanes, chosen.simulations_per_round) == (lanes, 19_200)


def test_the_preset_is_played_so():
    config = load_config("chess_20x256", {})
    chosen = settled(config.self_play, config.search, config.training.batch_size, num_ranks=8)
    assert (chosen.lanes, chosen.simulations_per_round) == (4096, 19_200)


def test_several_leaves_of_a_tree_fill_a_batch_from_fewer_lanes():
    assert settled(GPU, SearchConfig(leaves=4), 4096, num_ranks=8).lanes == 1024
    # Gumbel's trees have one.
    assert settled(GPU, SearchConfig(algorithm="gumbel", leaves=4), 4096, num_ranks=8).lanes == 4096


def test_small_batches_have_few_lanes():
    # Games of chess from zero have some 180 plies: 256 lanes would hold eight generations of chess_cpu.
    config = load_config("chess_cpu", {})
    lanes = [settled(config.self_play, config.search, 256, num_ranks).lanes for num_ranks in (1, 2)]
    assert lanes == [64, 128]


def test_a_round_is_at_most_a_generation_and_at_least_a_search():
    small = SelfPlayConfig(steps_per_generation=10, reuse=2.0, lanes=256)
    search = SearchConfig(simulations=64)
    # 10 steps of 512 positions, each trained on twice: 2,560 searches over 256 lanes.
    assert settled(small, search, 512, num_ranks=1).simulations_per_round == 10 * 64
    assert settled(small, search, 16, num_ranks=1).simulations_per_round == 64


def test_quick_searches_count_by_their_share():
    own = SelfPlayConfig(
        steps_per_generation=1, reuse=1.0, full_search_share=0.25, fast_simulations=20, lanes=200
    )
    # For each of 1,000 positions one search of 100 and three of 20.
    chosen = settled(own, SearchConfig(simulations=100), 1000, num_ranks=1)
    assert chosen.simulations_per_round == 1000 * (100 + 3 * 20) / 200
    with pytest.raises(ConfigError, match=r"--full-search-share: '0': expected .*0\.01"):
        load_config("", {"full_search_share": "0"})  # no position would be trained on


def test_what_is_named_is_not_chosen():
    own = SelfPlayConfig(lanes=7, simulations_per_round=11)
    assert settled(own, SearchConfig(), 4096, num_ranks=8) == own


def test_a_run_keeps_what_it_began_with():
    saved = {"self_play": {"lanes": 512, "simulations_per_round": 640}}
    for flags, expected in (
        ({}, (512, 640)),
        ({"lanes": "auto", "simulations_per_round": "auto"}, (512, 640)),
        ({"lanes": "7", "simulations_per_round": "11"}, (7, 11)),
    ):
        own = kept_settings(saved, 0, load_config("", flags)).self_play
        assert (own.lanes, own.simulations_per_round) == expected


def test_auto_is_a_word_of_flags_and_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[self_play]\nlanes = "auto"\nsimulations_per_round = "auto"\n')
    for config in (
        load_config(str(path), {}),
        load_config("", {"lanes": "auto", "simulations_per_round": "auto"}),
    ):
        assert (config.self_play.lanes, config.self_play.simulations_per_round) == (0, 0)
    with pytest.raises(ConfigError, match=r"--lanes: 'some': .*auto"):
        load_config("", {"lanes": "some"})
