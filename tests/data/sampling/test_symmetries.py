"""Samples shown in the symmetries of their game: as if the game itself had been played so."""

import random
from pathlib import Path

import numpy as np
import pytest

from alphazero import _core
from alphazero.data.sampling.loader import Loader, WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView
from alphazero.games.registry import get_spec, make_line

# A square of tic-tac-toe under each symmetry, written out by hand: quarter turns to the left of
#   6 7 8
#   3 4 5
#   0 1 2
# then their mirror images.
TURNED = {
    "tictactoe": (
        (0, 1, 2, 3, 4, 5, 6, 7, 8),
        (2, 5, 8, 1, 4, 7, 0, 3, 6),
        (8, 7, 6, 5, 4, 3, 2, 1, 0),
        (6, 3, 0, 7, 4, 1, 8, 5, 2),
        (2, 1, 0, 5, 4, 3, 8, 7, 6),
        (0, 3, 6, 1, 4, 7, 2, 5, 8),
        (6, 7, 8, 3, 4, 5, 0, 1, 2),
        (8, 5, 2, 7, 4, 1, 6, 3, 0),
    ),
    "connect4": ((0, 1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1, 0)),
}


def window_of(game: str, games: list[list[int]]) -> Window:
    offset = np.concatenate([[0], np.cumsum([len(moves) for moves in games])]).astype(np.int32)
    view = ShardView(
        name="made",
        path=Path("made"),
        num_games=len(games),
        num_plies=int(offset[-1]),
        moves=np.concatenate(games).astype(np.uint16),
        moves_offset=offset,
        result=np.ones(len(games), np.int8),
        result_valid=np.ones(len(games), np.bool_),
        fen_bytes=np.zeros(0, np.uint8),
        fen_offset=np.zeros(len(games) + 1, np.int32),
    )
    return Window.of_shards(game, [view], [str(games)])


def random_games(game: str, count: int) -> list[list[int]]:
    generator = random.Random(3)
    games = []
    for _ in range(count):
        line, moves = make_line(game), []
        while not line.outcome().over:
            moves.append(generator.choice(line.legal()))
            line.push(moves[-1])
        games.append(moves)
    return games


@pytest.mark.parametrize("game", TURNED)
def test_a_turned_sample_is_the_sample_of_the_turned_game(game: str) -> None:
    spec, games = get_spec(game), random_games(game, 20)
    assert spec.num_symmetries == len(TURNED[game])
    encoder = WindowEncoder(window_of(game, games), spec, num_threads=2)
    ids = np.arange(sum(map(len, games)))
    for number, turned in enumerate(TURNED[game]):
        shown = encoder.encode(ids, np.full(len(ids), number, np.uint8))
        turned_games = [[turned[move] for move in moves] for moves in games]
        played = WindowEncoder(window_of(game, turned_games), spec, num_threads=1).encode(ids)
        for name in ("packed", "legal_offset", "legal_index", "policy", "wdl", "moves_left"):
            assert np.array_equal(getattr(shown, name), getattr(played, name)), (number, name)


def test_chess_has_none() -> None:
    assert get_spec("chess").num_symmetries == 1


def test_all_symmetries_are_as_likely_and_a_function_of_seed_and_place() -> None:
    chosen = _core.symmetries(5, 0, 80_000, 8)
    counts = np.bincount(chosen, minlength=8)
    assert len(counts) == 8 and np.all(np.abs(counts - 10_000) < 500)
    assert np.array_equal(_core.symmetries(5, 1000, 50, 8), chosen[1000:1050])
    assert not np.array_equal(_core.symmetries(6, 0, 50, 8), chosen[:50])


def test_the_loader_turns_the_same_samples_whoever_encodes_them() -> None:
    window, spec = window_of("connect4", random_games("connect4", 30)), get_spec("connect4")
    sizes = {"seed": 1, "batch_size": 32, "symmetries": True}
    whole = Loader(window, spec, micro_batch_size=32, **sizes).step(7)[0].batch.packed
    cut = [entry.batch.packed for entry in Loader(window, spec, micro_batch_size=8, **sizes).step(7)]
    assert np.array_equal(whole, np.concatenate(cut))
    plain = Loader(window, spec, seed=1, batch_size=32, micro_batch_size=32).step(7)[0].batch.packed
    turned = [row for row in range(32) if not np.array_equal(whole[row], plain[row])]
    assert 8 < len(turned) < 24


def test_a_symmetry_that_the_game_has_not_is_refused() -> None:
    encoder = WindowEncoder(window_of("connect4", [[3, 3]]), get_spec("connect4"), num_threads=1)
    with pytest.raises(IndexError, match="symmetry"):
        encoder.encode(np.array([0]), np.array([2], np.uint8))
