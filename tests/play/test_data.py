"""Stores and training batches from Python."""

import numpy as np
import pytest
import torch

import alphazero as az
from alphazero.data.sampling.loader import Loader
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import GameStore
from alphazero.games.registry import get_spec


@pytest.fixture(scope="module")
def store(random_store) -> az.Store:
    return az.open_store(random_store)


def test_games_of_a_store(store):
    assert len(store) == 64
    assert store.game == "chess"
    games = list(store)
    assert [game.number for game in games] == list(range(64))
    assert store[-1] == games[-1]
    assert store[10].moves == games[10].moves
    assert sum(map(len, games)) == store.num_plies
    boards = list(games[3].boards())
    assert len(boards) == len(games[3]) + 1
    assert boards[-1].fen == games[3].board().fen
    assert boards[4].moves == games[3].moves[:4]
    with pytest.raises(IndexError, match=r"game 64: .*64"):
        store[64]


def test_a_store_as_a_table(store):
    table = store.to_arrow()
    assert [len(moves) for moves in table["moves"].to_pylist()] == [len(game) for game in store]
    assert len(table.to_pandas()) == 64
    assert store.summary()["games"] == 64


def test_pgn_files_are_imported_once(shared_data, tmp_path):
    path = shared_data / "pgn_small" / "molinari-bordais-1979.pgn"
    store = az.open_store(path, cache_dir=tmp_path)
    assert len(store) == 1
    assert az.open_store(path, cache_dir=tmp_path).path == store.path


def test_a_missing_store_is_one_line():
    with pytest.raises(az.AlphaZeroError, match="nowhere: no such"):
        az.open_store("nowhere")


def test_batches_are_those_of_training(store, random_store):
    batches = az.Batches(store, batch_size=32, seed=5, first_step=2, steps=3)
    loader = Loader(
        Window.of_stores([GameStore.open(random_store)]),
        get_spec("chess"),
        seed=5,
        batch_size=32,
        micro_batch_size=32,
    )
    assert len(batches) == 3
    for step, batch in enumerate(batches, start=2):
        (expected,) = loader.step(step)
        assert np.array_equal(batch.sample_id, expected.batch.sample_id)
        assert np.array_equal(batch.wdl, expected.batch.wdl)
        assert batch.planes.shape == (32, 112, 8, 8)
        assert batch.policy.shape == batch.legal.shape == (32, 1858)
        assert batch.policy.sum(1) == pytest.approx(np.ones(32))
        assert not batch.policy[~batch.legal].any()
        assert batch.legal.sum() == len(expected.batch.legal_index)
        assert len(batch) == 32


def test_iterating_again_gives_the_same_batches(random_store):
    batches = az.Batches(random_store, batch_size=64, steps=2, as_torch=True)
    first, again = list(batches), list(batches)
    assert all(torch.equal(one.planes, other.planes) for one, other in zip(first, again, strict=True))
    assert len(az.Batches(random_store, batch_size=100)) == batches.num_positions // 100


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"first_step": -1}, {"steps": -1}])
def test_sizes_that_cannot_be(random_store, wrong):
    with pytest.raises(az.AlphaZeroError, match="least 1, 0 and 0"):
        az.Batches(random_store, **wrong)
