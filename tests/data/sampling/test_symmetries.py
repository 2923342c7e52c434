"""Samples shown in the symmetries of their game: as if the game itself had been played so."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import alphazero._core as _core
from alphazero.data.sampling.loader import Loader, WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView
from alphazero.games.registry import get_spec, make_line
from alphazero.run.directory import RunDirectory
from alphazero.settings.data import DataConfig
from alphazero.settings.load import Config
from alphazero.settings.sections import TrainingConfig
from alphazero.training.loop.job import Job
from alphazero.training.ranks.batch import BatchPlan
from alphazero.training.ranks.runtime import Runtime
from alphazero.training.sources.given_games import make_loader

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


def test_chess_is_mirrored_where_nobody_may_castle_and_left_alone_elsewhere() -> None:
    generator = random.Random(8)
    games = []
    for _ in range(12):
        line, moves = make_line("chess"), []
        while not line.outcome().over and len(moves) < 160:
            # Kings walk early in some games: then mirrored positions have the usual start in their history.
            early = [move for move in line.legal() if move & 63 in (4, 60)]
            moves.append(generator.choice(early if early and generator.random() < 0.5 else line.legal()))
            line.push(moves[-1])
        games.append(moves)
    window, spec = window_of("chess", games), get_spec("chess")
    encoder = WindowEncoder(window, spec, num_threads=2)
    ids = np.arange(window.num_samples)
    plain = encoder.encode(ids)
    mirrored = encoder.encode(ids, np.ones(len(ids), np.uint8))
    may_castle = plain.packed[:, 8 * spec.num_bit_planes :][:, :4].any(axis=1)
    early_mirrors = 0
    for row in ids:
        places = slice(plain.legal_offset[row], plain.legal_offset[row + 1])
        assert mirrored.legal_offset[row] == plain.legal_offset[row]
        policy_of = dict(zip(plain.legal_index[places], plain.policy[places], strict=True))
        bits = np.unpackbits(plain.packed[row, : 8 * spec.num_bit_planes], bitorder="little").reshape(
            -1, 8, 8
        )
        if not may_castle[row]:
            bits = bits[:, :, ::-1]
            policy_of = {MIRRORED_INDEX[index]: share for index, share in policy_of.items()}
            early_mirrors += int(window.locate(ids[row : row + 1]).ply[0] < 8)
        found = np.unpackbits(mirrored.packed[row, : 8 * spec.num_bit_planes], bitorder="little")
        assert np.array_equal(found.reshape(-1, 8, 8), bits), row
        assert np.array_equal(mirrored.packed[row, 832:], plain.packed[row, 832:])
        assert mirrored.legal_index[places].tolist() == sorted(policy_of)
        assert mirrored.policy[places].tolist() == [policy_of[index] for index in sorted(policy_of)]
    assert np.array_equal(plain.wdl, mirrored.wdl) and early_mirrors and may_castle.any()


def _mirrored_indices() -> dict[int, int]:
    """Policy index of each chess move to that of its mirror image, from their names."""
    moves = list(_core.chess_policy_moves())
    files = str.maketrans("abcdefgh", "hgfedcba")
    number = {move: index for index, move in enumerate(moves)}
    # The last letter of a promotion names a piece: b is a bishop there.
    return {index: number[move[:4].translate(files) + move[4:]] for index, move in enumerate(moves)}


MIRRORED_INDEX = _mirrored_indices()


def test_a_run_mirrors_chess_only_when_asked() -> None:
    games = [[12 | 28 << 6, 52 | 36 << 6, 4 | 12 << 6, 60 | 52 << 6, 1 | 18 << 6, 62 | 45 << 6]]
    window = window_of("chess", games)
    plan = BatchPlan(64, 64, (1,))
    runtime = Runtime(0, 0, 1, 1, torch.device("cpu"), "gloo", "here")
    for mirror in (False, True):
        config = Config(data=DataConfig(mirror=mirror), training=TrainingConfig(seed=3))
        job = Job(config, runtime, RunDirectory(Path()), num_steps=1, num_samples=0)
        loader = make_loader(job, window, plan)
        shown = loader.step(0)[0].batch
        rows = {row.tobytes() for row in shown.packed}
        # Of six positions the last two are without castling rights.
        assert len(rows) == (8 if mirror else 6)


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
