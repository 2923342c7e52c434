import dataclasses
from pathlib import Path

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.data.formats.importer import import_games
from alphazero.data.sampling.loader import WindowEncoder
from alphazero.data.sampling.window import Mixture, Window, sample_ids
from alphazero.data.store.store import GameStore
from alphazero.games.registry import get_spec
from tests.support.data.chess_games import random_games, window_of

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """SplitMix64's finaliser, in Python's integers."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def slow_sample(seed: int, position: int, size: int) -> int:
    """The order's definition a second time: twelve Feistel rounds, walked until inside the domain."""
    epoch, index = divmod(position, size)
    key = mix((mix((seed + GOLDEN) & MASK) + (epoch + 1) * GOLDEN) & MASK)
    bits = (size - 1).bit_length()
    low_bits = (bits + 1) // 2
    high_bits = bits - low_bits
    while True:
        high, low = index >> low_bits, index % (1 << low_bits)
        for turn in range(12):
            round_key = key + (turn + 1) * GOLDEN
            if turn % 2 == 0:
                high ^= mix((low + round_key) & MASK) % (1 << high_bits)
            else:
                low ^= mix((high + round_key) & MASK) % (1 << low_bits)
        index = high << low_bits | low
        if index < size:
            return index


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 1000, 4097])
def test_an_epoch_holds_every_sample_once(size: int):
    for seed in range(5):
        for epoch in range(3):
            ids = _core.sample_ids(seed, epoch * size, size, size)
            assert sorted(ids.tolist()) == list(range(size))


def test_the_order_is_the_one_of_its_definition():
    for seed, size, first in ((0, 1000, 0), (7, 123457, 123000), (2**63, 12345678901, 5), (3, 2, 0)):
        expected = [slow_sample(seed, first + i, size) for i in range(700)]
        assert _core.sample_ids(seed, first, 700, size).tolist() == expected


def test_batches_run_across_the_ends_of_epochs():
    size, batch_size = 1000, 384
    joined = np.concatenate([sample_ids(5, step, batch_size, size) for step in range(125)])
    assert len(joined) == 48 * size
    for epoch in joined.reshape(48, size):
        assert len(np.unique(epoch)) == size


def test_a_batch_may_be_longer_than_an_epoch():
    ids = sample_ids(1, 2, 50, 7)
    stream = np.concatenate([_core.sample_ids(1, epoch * 7, 7, 7) for epoch in range(22)])
    assert ids.tolist() == stream[100:150].tolist()


def test_epochs_and_seeds_have_orders_of_their_own():
    size = 5000
    orders = [_core.sample_ids(seed, epoch * size, size, size) for seed in range(3) for epoch in range(3)]
    for i, one in enumerate(orders):
        for other in orders[:i]:
            # Two random permutations agree in one place on average.
            assert (one == other).sum() < 12
        correlation = np.corrcoef(np.arange(size), one)[0, 1]
        assert abs(correlation) < 0.06, "four standard deviations"
        steps = np.corrcoef(one[:-1], one[1:])[0, 1]
        assert abs(steps) < 0.06


def test_every_sample_is_equally_likely_to_come_first():
    size, trials = 10, 20000
    counts = np.zeros((size, size))
    for seed in range(trials):
        counts[np.arange(size), _core.sample_ids(seed, 0, size, size)] += 1
    expected = trials / size
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1)
    assert chi_square.max() < 33.7, "chi-square of 9 degrees, one in 10,000"


def test_places_and_ids_count_only_games_with_a_result_and_a_move():
    shards = [random_games(30, "a", 20), random_games(1, "b", 20), random_games(25, "c", 20)]
    window = window_of(*shards)
    expected = [
        (shard, row, ply)
        for shard, games in enumerate(shards)
        for row, game in enumerate(games)
        for ply in range(len(game.board.move_stack))
        if game.result is not None
    ]
    places = window.locate(np.arange(window.num_samples))
    assert list(zip(places.shard, places.game, places.ply, strict=True)) == expected
    assert window.num_games == len({(shard, row) for shard, row, _ in expected})
    assert any(game.result is None for games in shards for game in games)
    assert any(not game.board.move_stack for games in shards for game in games)


@pytest.mark.parametrize("bad", [-1, 10**9])
def test_ids_outside_the_window_are_refused(bad: int):
    window = window_of(random_games(5, "a"))
    with pytest.raises(IndexError):
        window.locate(np.array([0, bad]))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.25, 0.999, 1.0])
def test_a_split_holds_every_sample_once_and_never_cuts_a_game(share: float):
    window = window_of(random_games(30, "a"), random_games(20, "b"))
    training, validation = window.split(share)
    assert training.num_games + validation.num_games == window.num_games
    wanted = round(share * window.num_games)
    assert validation.num_games == (min(max(wanted, 1), window.num_games - 1) if share else 0)
    parts = [part.locate(np.arange(part.num_samples)) for part in (training, validation)]
    whole = window.locate(np.arange(window.num_samples))
    for field in dataclasses.fields(whole):
        joined = np.concatenate([getattr(part, field.name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, field.name))


def test_one_game_cannot_be_split():
    window = window_of([game for game in random_games(20, "a") if game.result is not None][:1])
    with pytest.raises(ConfigError, match=r"validation_share 0\.1"):
        window.split(0.1)


def test_window_ids_name_content_and_order():
    a, b = random_games(20, "a"), random_games(20, "b")
    window = window_of(a, b)
    assert window.id == window_of(a, b).id
    training, validation = window.split(0.2)
    again, _ = window_of(a, b).split(0.2)
    assert training.id == again.id
    assert len({window.id, window_of(b, a).id, window_of(a).id, training.id, validation.id}) == 5


def test_a_window_of_stores_follows_shards_and_their_checksums(shared_data: Path, tmp_path: Path):
    sources = sorted((shared_data / "pgn_small").glob("*.pgn*"))
    import_games(sources, tmp_path / "one", workers=1, shard_limits=(3, 10**9))
    import_games(sources, tmp_path / "other", workers=1)
    one, other = GameStore.open(tmp_path / "one"), GameStore.open(tmp_path / "other")
    assert len(one.shards) > len(other.shards)
    window, whole = Window.of_stores([one]), Window.of_stores([other])
    assert window.num_samples == whole.num_samples > 0
    assert window.id != whole.id, "equal games, but in other shards"
    assert window.id == Window.of_stores([GameStore.open(tmp_path / "one")]).id
    spec = get_spec("chess")
    ids = np.arange(window.num_samples)
    packed = [WindowEncoder(part, spec, num_threads=1).encode(ids).packed for part in (window, whole)]
    np.testing.assert_array_equal(*packed)
    both = Window.of_stores([one, other])
    assert both.num_samples == 2 * whole.num_samples
    assert both.locate(np.array([window.num_samples])).shard == len(one.shards)


def test_no_stores_are_an_error():
    with pytest.raises(DataError):
        Window.of_stores([])


def test_joined_windows_hold_the_samples_of_one_after_those_of_the_other():
    a, b, c = (random_games(20, name) for name in "abc")
    first, second = window_of(a, b), window_of(c).games_from(3)
    joined = Window.joined(first, second)
    assert joined.num_samples == first.num_samples + second.num_samples
    places = joined.locate(np.arange(joined.num_samples))
    parts = [part.locate(np.arange(part.num_samples)) for part in (first, second)]
    np.testing.assert_array_equal(places.shard, np.concatenate([parts[0].shard, parts[1].shard + 2]))
    np.testing.assert_array_equal(places.game, np.concatenate([part.game for part in parts]))
    np.testing.assert_array_equal(places.ply, np.concatenate([part.ply for part in parts]))
    encoders = [WindowEncoder(w, get_spec("chess"), num_threads=1) for w in (joined, second)]
    last = np.arange(second.num_samples)
    np.testing.assert_array_equal(
        encoders[0].encode(last + first.num_samples).packed, encoders[1].encode(last).packed
    )


def test_joined_windows_are_named_by_their_parts():
    a, b = window_of(random_games(20, "a")), window_of(random_games(20, "b"))
    windows = [
        Window.joined(a, b),
        Window.joined(b, a),
        Window.joined(a, b.games_from(1)),
        Window.joined(a.games_from(1), b),
        Window.joined(a, b).games_from(1),
        Window.joined(a, a),
        a,
    ]
    assert len({window.id for window in windows}) == len(windows)
    assert Window.joined(a, b).id == windows[0].id
    other_game = dataclasses.replace(b, game_name="connect4")
    with pytest.raises(DataError, match=r"chess and .*connect4"):
        Window.joined(a, other_game)


@pytest.mark.parametrize(
    ("batch_size", "share", "from_first"),
    [(64, 0.25, 16), (64, 0.0, 0), (64, 1.0, 64), (10, 0.33, 3), (1024, 0.1, 102), (3, 0.5, 2), (7, 0.01, 0)],
)
def test_a_mixture_takes_its_share_of_every_batch(batch_size: int, share: float, from_first: int):
    mixture = Mixture(num_first=500, first_share=share)
    for step in range(20):
        ids = mixture.sample_ids(9, step, batch_size, 1700)
        assert len(ids) == batch_size and ids.min() >= 0 and ids.max() < 1700
        assert (ids < 500).sum() == from_first


def test_each_part_of_a_mixture_goes_through_whole_epochs():
    """40 of each batch from 1,000, 60 from 3,000: after 75 steps three epochs and one and a half."""
    mixture = Mixture(num_first=1000, first_share=0.4)
    ids = np.stack([mixture.sample_ids(3, step, 100, 4000) for step in range(75)])
    historical, played = ids[ids < 1000], ids[ids >= 1000]
    assert np.bincount(historical, minlength=1000).tolist() == [3] * 1000
    counts = np.bincount(played - 1000, minlength=3000)
    assert counts.min() == 1 and counts.max() == 2 and (counts == 2).sum() == 1500


def test_the_order_of_a_part_does_not_depend_on_the_other():
    for step in range(5):
        one = Mixture(1000, 0.25).sample_ids(3, step, 64, 1500)
        grown = Mixture(1000, 0.25).sample_ids(3, step, 64, 9000)
        np.testing.assert_array_equal(one[one < 1000], grown[grown < 1000])
        np.testing.assert_array_equal(one < 1000, grown < 1000)


def test_micro_batches_of_a_mixture_are_alike():
    """Over 400 batches every place is historical about as often as any other: 100 times in 400."""
    mixture = Mixture(5000, 0.25)
    is_first = np.stack([mixture.sample_ids(1, step, 64, 20000) < 5000 for step in range(400)])
    per_place = is_first.sum(axis=0)
    assert abs(per_place - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75), "five standard deviations"
    per_micro_batch = is_first.reshape(400 * 4, 16).sum(axis=1)
    # Hypergeometric: 16 of 64 of which 16 are historical; variance 16 * 1/4 * 3/4 * 48/63.
    assert abs(per_micro_batch.var() - 16 * 0.25 * 0.75 * 48 / 63) < 0.35
    assert abs(np.corrcoef(is_first[:-1].ravel(), is_first[1:].ravel())[0, 1]) < 0.03


def test_a_mixture_is_a_function_of_its_arguments():
    mixture = Mixture(100, 0.5)
    ids = mixture.sample_ids(2**64 - 1, 7, 32, 300)
    assert ids.tolist() == Mixture(100, 0.5).sample_ids(2**64 - 1, 7, 32, 300).tolist()
    for other in (
        mixture.sample_ids(5, 7, 32, 300),
        mixture.sample_ids(2**64 - 1, 8, 32, 300),
        mixture.sample_ids(2**64 - 1, 7, 32, 3000),
        Mixture(101, 0.25).sample_ids(2**64 - 1, 7, 32, 300),
    ):
        assert ids.tolist() != other.tolist()


def test_a_mixture_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match=r"share 1\.5"):
        Mixture(10, 1.5)
    with pytest.raises(DataError, match=r"16 of 64 .*historical"):
        Mixture(0, 0.25).check(64, 100)
    with pytest.raises(DataError, match=r"48 of 64 .*self-play"):
        Mixture(100, 0.25).check(64, 100)
    Mixture(0, 0.0).check(64, 100)
    Mixture(100, 1.0).check(64, 100)
