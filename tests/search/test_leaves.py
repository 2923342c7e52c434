"""The setting `leaves`: how many positions of one tree wait for the network at a time."""

from dataclasses import replace

import numpy as np
import pytest

from alphazero.base.errors import ConfigError
from alphazero.cli.main import main
from alphazero.games.registry import make_line
from alphazero.play.search_settings import search_settings, self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.search.batched import search_lines
from alphazero.settings.load import load_config
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator


class Watched(MadeUpEvaluator):
    """Notes the sizes of the batches."""

    def __init__(self, batch_size: int) -> None:
        super().__init__("connect4", batch_size)
        self.sizes: list[int] = []

    def submit(self, packed, legal_index, legal_offset):
        self.sizes.append(len(packed))
        return super().submit(packed, legal_index, legal_offset)


def test_a_single_tree_fills_batches_with_as_many_leaves_as_the_setting_says() -> None:
    config = SearchConfig(simulations=200)
    one, eight = Watched(8), Watched(8)
    (alone,) = search_lines([make_line("connect4")], one, search_settings(config))
    (together,) = search_lines([make_line("connect4")], eight, search_settings(replace(config, leaves=8)))
    assert set(one.sizes) == {1} and max(eight.sizes) == 8
    assert len(eight.sizes) < len(one.sizes) / 4
    assert alone.visits == together.visits == 200
    assert not np.array_equal(alone.policy, together.policy)


def test_self_play_takes_the_setting_and_its_default_is_one() -> None:
    config = load_config("", {"leaves": "4"})
    assert self_play_settings(config.search, config.self_play, seed=0).search.leaves == 4
    assert search_settings(SearchConfig()).leaves == 1
    evaluator = Watched(8)
    settings = self_play_settings(replace(config.search, simulations=40), SelfPlayConfig(), seed=0)
    played = play("connect4", settings, [new_lane(0)], 5, evaluator)
    assert played.is_complete and max(evaluator.sizes) == 4


@pytest.mark.parametrize("leaves", ["0", "many"])
def test_what_is_no_number_of_leaves_is_refused(leaves: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--gpus", "1", "--leaves", leaves]) == 2
    assert f"--leaves: {leaves!r}: expected" in capsys.readouterr().err


def test_more_leaves_than_an_evaluation_takes_are_refused_but_gumbel_has_one() -> None:
    many = SearchConfig(simulations=20, leaves=9)
    with pytest.raises(ConfigError, match=r"--leaves 9: .*8"):
        search_lines([make_line("connect4")], Watched(8), search_settings(many))
    with pytest.raises(ConfigError, match=r"--leaves 9: .*8"):
        play("connect4", self_play_settings(many, SelfPlayConfig(), 0), [new_lane(0)], 1, Watched(8))
    gumbel = search_settings(replace(many, algorithm="gumbel"))
    assert search_lines([make_line("connect4")], Watched(8), gumbel)[0].visits == 20
