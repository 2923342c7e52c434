"""Which filters hold for the games that are trained on, for those held out of them, and for those given."""

from pathlib import Path

import numpy as np
import pytest

from alphazero.base.errors import ConfigError, DataError
from alphazero.data.sampling.window import Window
from alphazero.settings.data import DataConfig
from alphazero.settings.load import Config
from alphazero.settings.sections import TrainingConfig
from alphazero.settings.self_play import SelfPlayConfig
from alphazero.training.ranks.exchange import Exchange
from alphazero.training.sources.given_games import open_data
from tests.support.data.stores import game, write_games

pytestmark = pytest.mark.usefixtures("lone_runtime")

LINE = "e4 e5 Nf3 Nc6 Bb5 a6"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty games of six plies; every second one is of weaker players, and White hurries in all of them."""
    clocks = [60000, 60000, 5000, 60000, 5000, 60000]
    rows = [
        game(LINE, 1, white_elo=1500 + 100 * (number % 2), black_elo=1600, clock_ms=clocks)
        for number in range(20)
    ]
    path = tmp_path_factory.mktemp("open") / "store"
    write_games(path, rows)
    return path


def opened(store: Path, mode: str = "supervised", **settings: object) -> tuple[Window | None, Window | None]:
    data = DataConfig(data=(str(store),), validation_share=0.2, **settings)  # type: ignore[arg-type]
    config = Config(data=data, self_play=SelfPlayConfig(mode=mode), training=TrainingConfig(seed=3))
    return open_data(config, Exchange())


def plies(window: Window | None) -> list[int]:
    assert window is not None
    return window.locate(np.arange(window.num_samples)).ply.tolist()


def test_filters_of_the_data_hold_for_what_is_held_out_and_those_of_training_do_not(store: Path):
    window, held_out = opened(store, min_elo=1600, min_clock=30.0, skip_plies=2)
    assert window is not None and held_out is not None
    assert window.game.tolist() == [1, 3, 5, 7, 9, 11, 13, 15] and held_out.game.tolist() == [17, 19]
    assert plies(held_out) == 2 * [0, 1, 2, 3, 5] and plies(window) == 8 * [2, 3, 5]
    assert [str(count).partition(" of ")[0] for count in window.filtered] == [
        "min_elo 1600: removed 10",
        "min_clock 30: removed 10",
        "skip_plies 2: removed 16",
    ]
    assert window.filtered[:2] == held_out.filtered
    window, held_out = opened(store, max_positions_per_game=2, merge_duplicates=True)
    assert window is not None and held_out is not None
    assert window.num_samples == 6 and held_out.num_samples == 4 * 6


def test_validation_data_of_ones_own_stays_as_it_is(store: Path):
    window, held_out = opened(store, validation_data=(str(store),), min_elo=1600, skip_plies=5)
    assert held_out is not None and (held_out.num_games, held_out.num_samples) == (20, 120)
    assert plies(window) == 10 * [5]


def test_windows_of_other_filters_are_others(store: Path):
    ids = [
        [given.id for given in opened(store, **settings) if given is not None]
        for settings in ({}, {"min_elo": 1}, {"skip_plies": 1}, {"merge_duplicates": True})
    ]
    assert len({pair[0] for pair in ids}) == 4  # min_elo 1 removes nothing and is a filter all the same
    assert ids[2][1] == ids[3][1] == ids[0][1] != ids[1][1]


def test_self_play_alone_has_nothing_to_filter(store: Path):
    alone = Config(data=DataConfig(min_elo=1600), self_play=SelfPlayConfig(mode="selfplay"))
    with pytest.raises(ConfigError, match=r"^min_elo 1600: .*--mode selfplay"):
        open_data(alone, Exchange())
    window, _ = opened(store, "mixed", min_elo=1600)
    assert window is not None and window.num_games == 8


def test_what_removes_everything_ends_the_start(store: Path):
    with pytest.raises(DataError, match=r"min_elo 1601: removed 20"):
        opened(store, min_elo=1601)
    with pytest.raises(ConfigError, match=r"^min_elo 2 .*max"):
        opened(store, min_elo=2, max_elo=1)
