"""The window of self-play: sizes by hand and by KataGo's second form of the law, whole games by counting."""

from pathlib import Path

import numpy as np
import pytest

from alphazero.data.sampling.window import Window, newest_games, window_size
from alphazero.data.store.store import GameStore
from tests.support.data.stores import grown, row, searched


@pytest.mark.parametrize(
    ("positions", "size"),
    [
        (0, 250_000),
        (250_000, 250_000),
        (1_000_000, 493_790),  # 4^0.75 = 2.828427; 1 + 0.4 * 1.828427 / 0.75 = 1.975161
        (4_000_000, 1_183_333),  # 16^0.75 = 8; 1 + 0.4 * 7 / 0.75 = 4.733333
        (64_000_000, 8_650_000),  # 256^0.75 = 64; 1 + 0.4 * 63 / 0.75 = 34.6
    ],
)
def test_sizes_by_hand(positions: int, size: int):
    """Wu 2019, appendix C: c = 250,000, alpha 0.75, beta 0.4."""
    assert window_size(positions, 250_000, 0.75, 0.4) == size


def test_the_window_begins_with_slope_beta_and_ends_with_power_alpha():
    at_start = window_size(1_010_000, 1_000_000, 0.6, 0.3) - 1_000_000
    assert at_start == pytest.approx(0.3 * 10_000, rel=0.01)
    far = [window_size(count, 1000, 0.6, 0.3) for count in (10**12, 10**13)]
    assert np.log10(far[1] / far[0]) == pytest.approx(0.6, abs=1e-3)
    sizes = [window_size(count, 1000, 0.75, 0.4) for count in range(0, 20_000, 7)]
    assert sizes == sorted(sizes) and sizes[0] == 1000


def test_katagos_shuffler_asks_for_the_same():
    """Its form (python/shuffle.py): a power of the rows, shifted and scaled to slope 1, times the slope."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        minimum = int(rng.integers(1000, 10**6))
        rows = minimum + int(rng.integers(0, 10**8))
        exponent, slope = rng.uniform(0.5, 0.95), rng.uniform(0.1, 1.0)
        unscaled = float(rows) ** exponent - float(minimum) ** exponent
        desired = unscaled / (exponent * float(minimum) ** (exponent - 1)) * slope + minimum
        assert window_size(rows, minimum, exponent, slope) == pytest.approx(desired, abs=1)


def flagged(*flags: int) -> dict[str, object]:
    """A game of Connect Four, at most 6 plies, with these flags."""
    plies = len(flags)
    moves = [0, 1, 2, 3, 4, 5][:plies]
    policies = [[(move, 65535)] for move in moves]
    return searched(row("connect4", moves, 1), flags, policies, [0.0] * plies, [0.0] * plies)


@pytest.fixture
def store(tmp_path: Path) -> GameStore:
    """Samples a game: 2, 1 | 3, 0, 2 | 0 | 1, 4."""
    return grown(
        tmp_path / "s",
        [flagged(1, 0, 1), flagged(0, 1)],
        [flagged(1, 1, 1), flagged(0, 0, 0), flagged(0, 1, 0, 1)],
        [flagged(0, 0)],
        [flagged(0, 0, 1), flagged(1, 1, 0, 1, 1)],
    )


@pytest.mark.parametrize(
    ("size", "samples", "games", "shards"),
    [
        (0, 0, 0, 0),
        (1, 4, 1, 1),
        (4, 4, 1, 1),
        (5, 5, 2, 1),
        (6, 7, 3, 3),
        (7, 7, 3, 3),
        (8, 10, 4, 3),
        (11, 11, 5, 4),
        (12, 13, 6, 4),
        (13, 13, 6, 4),
        (10**9, 13, 6, 4),
    ],
)
def test_the_newest_whole_games_reach_the_size(
    store: GameStore, size: int, samples: int, games: int, shards: int
):
    window = newest_games(store, size)
    assert (window.num_samples, window.num_games, len(window.shards)) == (samples, games, shards)
    assert window.content_ids == tuple(e.sha256 for e in store.manifest.shards[4 - shards :])
    whole = Window.of_stores([store])
    places, wanted = (w.locate(np.arange(w.num_samples)) for w in (window, whole))
    first = whole.num_samples - samples
    np.testing.assert_array_equal(places.shard + (4 - shards), wanted.shard[first:])
    np.testing.assert_array_equal(places.game, wanted.game[first:])
    np.testing.assert_array_equal(places.ply, wanted.ply[first:])


def test_equal_windows_are_named_alike_and_others_are_not(store: GameStore):
    sizes = (0, 4, 5, 7, 10, 11, 13)
    assert len({newest_games(store, size).id for size in sizes}) == len(sizes)
    assert newest_games(store, 6).id == newest_games(GameStore.open(store.path), 7).id


def test_an_empty_store_has_an_empty_window(tmp_path: Path):
    assert newest_games(grown(tmp_path / "s", [flagged(0)]), 5).num_samples == 0


def test_random_stores_against_counting_backwards(tmp_path: Path):
    rng = np.random.default_rng(5)
    for trial in range(20):
        shards = [
            [flagged(*rng.integers(0, 2, rng.integers(1, 7))) for _ in range(rng.integers(1, 6))]
            for _ in range(rng.integers(1, 6))
        ]
        counts = [int(sum(game["flags"])) for shard in shards for game in shard]
        store = grown(tmp_path / str(trial), *shards)
        size = int(rng.integers(0, 60))
        wanted = 0
        for count in reversed(counts):
            if wanted >= size:
                break
            wanted += count
        assert newest_games(store, size).num_samples == wanted
