"""The positions at which games begin are those of the newest shard whose search and result differ."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from alphazero.data.store.games import games_of
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.play import lanes as games
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from alphazero.training.sources.starts import NUM_STARTS, regretted_positions
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

SHARD_GAMES = (12, 6)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GameStore:
    """Two shards of games, half of whose moves are trained on."""
    own = SelfPlayConfig(full_search_share=0.5, fast_simulations=2, opening_plies=4)
    settings = self_play_settings(SearchConfig(simulations=8), own, seed=5)
    lanes = [new_lane(number) for number in range(18)]
    finished = play("connect4", settings, lanes, 42, MadeUpEvaluator("connect4", 8), to_the_end=True).finished
    assert len(finished) == sum(SHARD_GAMES)
    path = tmp_path_factory.mktemp("store") / "games"
    growing = GrowingStore(path, "connect4")
    for shard in (finished[: SHARD_GAMES[0]], finished[SHARD_GAMES[0] :]):
        growing.append(games.store_rows(games.to_batch(shard), "connect4", "puct", "made up"))
    return GameStore.open(path)


def regret_of_lines(store: GameStore) -> dict[tuple[int, ...], float]:
    """The regret of each position of the last shard, ply by ply; 0 where it is not trained on."""
    regret: Counter[tuple[int, ...]] = Counter()
    for game in games_of(store, SHARD_GAMES[0]):
        lists = game.lists
        for ply, (flag, value) in enumerate(zip(lists["flags"], lists["root_q"], strict=True)):
            z = game.values["result"] * (1 if ply % 2 == 0 else -1)
            regret[tuple(lists["moves"][:ply].tolist())] += abs(float(value) - z) * (flag & 1)
    return regret


def test_positions_are_drawn_by_regret(store: GameStore) -> None:
    """As often as their share of all regret has it, within four standard deviations."""
    regret = regret_of_lines(store)
    total, counts = sum(regret.values()), Counter[tuple[int, ...]]()
    for seed in range(20):
        drawn = regretted_positions(store, seed)
        assert len(drawn) == NUM_STARTS
        counts.update(map(tuple, drawn))
    number = 20 * NUM_STARTS
    for line, weight in regret.items():
        expected = number * weight / total
        assert abs(counts.pop(line, 0) - expected) <= 4 * np.sqrt(expected), line
    assert not counts


def test_the_draw_is_a_function_of_the_seed(store: GameStore) -> None:
    assert regretted_positions(store, 3) == regretted_positions(store, 3) != regretted_positions(store, 4)


def test_where_no_search_was_wrong_there_are_no_starts(tmp_path: Path) -> None:
    """A game in which nothing is trained on."""
    own = SelfPlayConfig(full_search_share=0.0, fast_simulations=4)
    settings = self_play_settings(SearchConfig(simulations=8), own, seed=5)
    played = play("connect4", settings, [new_lane(0)], 42, MadeUpEvaluator("connect4", 1), to_the_end=True)
    rows = games.store_rows(games.to_batch(played.finished), "connect4", "puct", "made up")
    GrowingStore(tmp_path / "games", "connect4").append(rows)
    assert regretted_positions(GameStore.open(tmp_path / "games"), 0) == []
