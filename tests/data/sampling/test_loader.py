import dataclasses
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import chess
import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.data.sampling.loader import Loader, WindowEncoder, batches_of, prefetched, spread_sample_ids
from alphazero.data.sampling.window import Mixture, Window, sample_ids
from alphazero.games.batch import Batch, MicroBatch
from alphazero.games.registry import get_spec, history_fill
from alphazero.training.ranks.batch import plan_batches
from tests.support.data.chess_games import Game, random_games, shard_of, window_of
from tests.support.games.chess_reference import core_move, identity, positions_of, slow_planes, unpack

CHESS = get_spec("chess")


@pytest.fixture(scope="module")
def shards() -> list[list[Game]]:
    return [random_games(40, "loader a"), random_games(30, "loader b")]


@pytest.fixture(scope="module")
def window(shards: list[list[Game]]) -> Window:
    return window_of(*shards)


def make_loader(window: Window, **settings: Any) -> Loader:
    defaults = {"seed": 3, "batch_size": 96, "micro_batch_size": 16}
    return Loader(window, CHESS, **{**defaults, **settings})


def assert_equal_batches(one: Batch, other: Batch) -> None:
    for field in dataclasses.fields(Batch):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes(), field.name


def assert_equal_steps(one: list[list[MicroBatch]], other: list[list[MicroBatch]]) -> None:
    assert [len(step) for step in one] == [len(step) for step in other]
    for ours, theirs in zip(chain(*one), chain(*other), strict=True):
        assert (ours.step, ours.index, ours.is_padding) == (theirs.step, theirs.index, theirs.is_padding)
        assert_equal_batches(ours.batch, theirs.batch)


@pytest.mark.parametrize("fill", ["no", "fen_only"])
def test_batches_hold_what_python_chess_says(shards: list[list[Game]], window: Window, fill: str):
    rng = np.random.default_rng(1)
    ids = rng.choice(window.num_samples, 400, replace=False)
    batch = WindowEncoder(window, CHESS, num_threads=2, fill=fill).encode(ids)
    places = window.locate(ids)
    moves = _core.chess_policy_moves()
    assert batch.sample_id.tolist() == ids.tolist()
    for row in range(len(ids)):
        game = shards[places.shard[row]][places.game[row]]
        ply = int(places.ply[row])
        positions = positions_of(game.board)[: ply + 1]
        board = positions[-1]
        names = [identity(position) for position in positions]
        np.testing.assert_array_equal(unpack(batch.packed[row]), slow_planes(positions, names, fill))
        begin, end = batch.legal_offset[row : row + 2]
        legal = batch.legal_index[begin:end]
        line = _core.ChessLine(board.fen())
        assert legal.tolist() == sorted({line.move_to_index(core_move(board, m)) for m in board.legal_moves})
        played = line.move_to_index(core_move(board, game.board.move_stack[ply]))
        assert batch.policy[begin:end].tolist() == (legal == played).astype(float).tolist(), moves[played]
        assert game.result is not None
        mover_result = game.result if board.turn == chess.WHITE else -game.result
        assert batch.wdl[row].tolist() == [mover_result == 1, mover_result == 0, mover_result == -1]
        assert batch.moves_left[row] == len(game.board.move_stack) - ply


def test_a_batch_has_the_declared_types(window: Window):
    batch = WindowEncoder(window, CHESS, num_threads=1).encode(np.arange(10))
    types = {field.name: getattr(batch, field.name).dtype.name for field in dataclasses.fields(Batch)}
    assert types == {
        "packed": "uint8",
        "legal_offset": "int32",
        "legal_index": "int32",
        "policy": "float32",
        "wdl": "float32",
        "moves_left": "float32",
        "sample_id": "int64",
    }
    assert batch.packed.shape == (10, 840) and batch.wdl.shape == (10, 3)


def test_white_wins_are_lost_for_black():
    board = chess.Board()
    for move in ("f2f3", "e7e5", "g2g4", "d8h4"):
        board.push_uci(move)
    batch = WindowEncoder(window_of([Game(board, -1)]), CHESS, num_threads=1).encode(np.arange(4))
    assert batch.wdl.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert batch.moves_left.tolist() == [4, 3, 2, 1]


def test_the_number_of_threads_changes_no_byte(window: Window):
    ids = np.random.default_rng(2).integers(0, window.num_samples, 1000)
    one = WindowEncoder(window, CHESS, num_threads=1).encode(ids)
    for num_threads in (2, 3, 8):
        encoder = WindowEncoder(window, CHESS, num_threads=num_threads)
        for _ in range(3):
            assert_equal_batches(encoder.encode(ids), one)


def test_an_encoder_may_be_shared_by_threads(window: Window):
    encoder = WindowEncoder(window, CHESS, num_threads=3)
    ids = [np.arange(start, start + 300) for start in range(0, 900, 300)]
    expected = [encoder.encode(part) for part in ids]
    found: dict[int, list[Batch]] = {}

    def work(index: int) -> None:
        found[index] = [encoder.encode(ids[index]) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, batches in found.items():
        assert len(batches) == 10
        for batch in batches:
            assert_equal_batches(batch, expected[index])


def test_an_empty_batch_is_empty(window: Window):
    batch = WindowEncoder(window, CHESS, num_threads=2).encode(np.zeros(0, np.int64))
    assert batch.packed.shape == (0, 840) and batch.legal_offset.tolist() == [0]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 7])
def test_ranks_together_hold_the_global_batch(window: Window, world_size: int):
    plan = plan_batches(96, 16, [1.0] * world_size, "cpu", equal_passes=True)
    loaders = [make_loader(window, passes=plan.passes_of(rank)) for rank in range(world_size)]
    for step in (0, 5):
        per_rank = [loader.step(step) for loader in loaders]
        assert {len(micro_batches) for micro_batches in per_rank} == {-(-6 // world_size)}
        real = [m for micro_batches in per_rank for m in micro_batches if not m.is_padding]
        for rank, micro_batches in enumerate(per_rank):
            assert [m.index for m in micro_batches if not m.is_padding] == list(range(rank, 6, world_size))
        ordered = sorted(real, key=lambda m: m.index)
        assert [m.index for m in ordered] == list(range(6))
        joined = np.concatenate([m.batch.sample_id for m in ordered])
        np.testing.assert_array_equal(joined, sample_ids(3, step, 96, window.num_samples))
        alone = make_loader(window).step(step)
        assert_equal_steps([ordered], [alone])
        padding = [m for micro_batches in per_rank for m in micro_batches if m.is_padding]
        assert len(padding) == -(-6 // world_size) * world_size - 6
        for micro_batch in padding:
            assert_equal_batches(micro_batch.batch, alone[0].batch)


def test_ranks_together_hold_the_batch_of_a_mixture(window: Window):
    joined = Window.joined(window, window_of(random_games(40, "newer")))
    mixture = Mixture(window.num_samples, 0.25)
    settings: dict[str, Any] = {"mixture": mixture}
    for world_size in (1, 2, 4):
        plan = plan_batches(96, 16, [1.0] * world_size, "cpu", equal_passes=True)
        steps = [
            make_loader(joined, passes=plan.passes_of(rank), **settings).step(4) for rank in range(world_size)
        ]
        real = sorted((m for step in steps for m in step if not m.is_padding), key=lambda m: m.index)
        ids = np.concatenate([m.batch.sample_id for m in real])
        assert ids.tolist() == mixture.sample_ids(3, 4, 96, joined.num_samples).tolist()
        assert (ids < window.num_samples).sum() == 24
    with pytest.raises(DataError, match=r"self-play, .* none"):
        make_loader(window, **settings)


def test_a_shifted_batch_is_another_one(window: Window):
    """The comparisons above can fail: one sample more, and the bytes differ."""
    encoder = WindowEncoder(window, CHESS, num_threads=1)
    ids = sample_ids(3, 0, 96, window.num_samples)
    with pytest.raises(AssertionError):
        assert_equal_batches(encoder.encode(ids), encoder.encode(np.roll(ids, 1)))


def test_a_resumed_run_continues_the_same_data(window: Window):
    whole = list(make_loader(window).iterate(0, 9))
    assert_equal_steps(list(make_loader(window, num_threads=2).iterate(4, 9)), whole[4:])
    assert [micro_batch.step for step in whole for micro_batch in step] == [
        s for s in range(9) for _ in range(6)
    ]


def test_windows_of_other_seeds_give_other_data(window: Window):
    one, other = make_loader(window).step(0), make_loader(window, seed=4).step(0)
    assert one[0].batch.sample_id.tolist() != other[0].batch.sample_id.tolist()


def test_sequential_batches_are_in_order_and_the_last_is_short(window: Window):
    encoder = WindowEncoder(window, CHESS, num_threads=2)
    ids = spread_sample_ids(window, 100)
    batches = list(batches_of(encoder, ids, 32))
    assert [len(batch.sample_id) for batch in batches] == [32, 32, 32, 4]
    np.testing.assert_array_equal(np.concatenate([batch.sample_id for batch in batches]), ids)
    assert_equal_batches(batches[3], encoder.encode(ids[96:]))


def test_spread_ids_reach_over_the_window_without_repeats(window: Window):
    ids = spread_sample_ids(window, 100)
    assert len(np.unique(ids)) == 100
    assert np.diff(ids).max() <= np.diff(ids).min() + 1 and ids[0] == 0
    assert spread_sample_ids(window, 10**9).tolist() == list(range(window.num_samples))


def test_position_keys_are_equal_for_equal_positions_only(shards: list[list[Game]], window: Window):
    for num_threads in (1, 3):
        keys = WindowEncoder(window, CHESS, num_threads=num_threads).position_keys()
        names = [
            identity(position)
            for games in shards
            for game in games
            if game.result is not None
            for position in positions_of(game.board)[:-1]
        ]
        assert keys.dtype == np.uint64 and len(keys) == len(names) == window.num_samples
        assert len(set(zip(keys.tolist(), names, strict=True))) == len(set(names)) == len(set(keys.tolist()))
    _, validation = window.split(0.3)
    tail = WindowEncoder(validation, CHESS, num_threads=1).position_keys()
    np.testing.assert_array_equal(tail, keys[len(keys) - len(tail) :])


def test_keys_are_those_of_a_line(window: Window):
    line = _core.ChessLine()
    board = chess.Board()
    for move in ("e2e4", "c7c5", "g1f3"):
        board.push_uci(move)
    keys = WindowEncoder(window_of([Game(board, 0)]), CHESS, num_threads=1).position_keys()
    assert keys[0] == line.key
    line.push_text("e2e4")
    assert keys[1] == line.key


def damaged(move: int, ply: int, fen: bytes = b"") -> Window:
    """A window of one good game and one with this move at this ply."""
    board = chess.Board()
    for uci in ("e2e4", "e7e5", "g1f3", "b8c6"):
        board.push_uci(uci)
    view = shard_of([Game(board, 1), Game(board, 1)], "store/shard-0")
    moves = view.moves.copy()
    moves[4 + ply] = move
    offset = np.array([0, 0, len(fen)], np.int32)
    view = dataclasses.replace(view, moves=moves, fen_bytes=np.frombuffer(fen, np.uint8), fen_offset=offset)
    return Window.of_shards("chess", [view], ["x"])


@pytest.mark.parametrize(
    "move",
    [
        chess.E2 | chess.E4 << 6,  # nothing on e2 any more
        chess.A2 | chess.A5 << 6,
        chess.F1 | chess.D2 << 6,  # own pawn there
        chess.E1 | chess.H1 << 6,  # castling over pieces
        0xFFFF,
    ],
)
def test_a_damaged_move_is_an_error_that_names_shard_game_and_ply(move: int):
    reason = f"^store/shard-0: game 1, ply 2: move {move} is not legal$"
    for num_threads in (1, 3):
        encoder = WindowEncoder(damaged(move, 2), CHESS, num_threads=num_threads)
        encoder.encode(np.arange(6))  # samples before the fault
        for sample in (6, 7):  # the fault is the move to learn, and a move on the way
            with pytest.raises(DataError, match=reason):
                encoder.encode(np.array([0, sample]))


def test_a_damaged_start_is_an_error_that_names_the_game():
    encoder = WindowEncoder(damaged(chess.E2 | chess.E4 << 6, 0, b"8/8/8 w - - 0 1"), CHESS, num_threads=2)
    with pytest.raises(DataError, match=r"shard-0: game 1, ply 0"):
        encoder.encode(np.arange(8))


def test_random_moves_in_a_shard_never_crash():
    rng = random.Random("noise")
    good = shard_of(random_games(20, "noise"), "noise")
    tried = encoded = 0
    for trial in range(300):
        moves = good.moves.copy()
        for _ in range(rng.choice([1, 5, len(moves)])):
            moves[rng.randrange(len(moves))] = rng.randrange(1 << 16)
        window = Window.of_shards("chess", [dataclasses.replace(good, moves=moves)], [str(trial)])
        encoder = WindowEncoder(window, CHESS, num_threads=1)
        for start in range(0, window.num_samples, 16):
            with suppress(DataError):
                encoder.encode(np.arange(start, min(start + 16, window.num_samples)))
                encoded += 1
            tried += 1
    assert encoded > 300 and tried - encoded > 300


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("moves_offset", np.array([0, 4, 9], np.int32)),
        ("moves_offset", np.array([0, 9, 8], np.int32)),
        ("moves_offset", np.array([-4, 4, 8], np.int32)),
        ("moves_offset", np.array([0, 8], np.int32)),
        ("fen_offset", np.array([0, 0, 1], np.int32)),
        ("result_valid", np.array([True])),
        ("result", np.array([1, 2], np.int8)),
    ],
)
def test_columns_that_do_not_fit_are_refused(field: str, value: np.ndarray):
    view = dataclasses.replace(damaged(chess.E2 | chess.E4 << 6, 0).shards[0], **{field: value})
    core = _core.ChessBatchEncoder(1)
    with pytest.raises(_core.GameError, match=r"^name: "):
        core.add_shard(
            "name",
            view.moves,
            view.moves_offset,
            view.result,
            view.result_valid,
            view.fen_bytes,
            view.fen_offset,
        )


@pytest.mark.parametrize("place", [(1, 0, 0), (-1, 0, 0), (0, 2, 0), (0, -1, 0), (0, 0, 4), (0, 0, -1)])
def test_places_that_do_not_exist_are_refused(place: tuple[int, int, int]):
    view = damaged(chess.E2 | chess.E4 << 6, 0).shards[0]
    core = _core.ChessBatchEncoder(2)
    core.add_shard(
        "name", view.moves, view.moves_offset, view.result, view.result_valid, view.fen_bytes, view.fen_offset
    )
    arrays = [np.array([index], np.int32) for index in place]
    with pytest.raises(IndexError):
        core.encode(*arrays, history_fill("no"))
    with pytest.raises(IndexError):
        core.encode(np.zeros(2, np.int32), np.zeros(1, np.int32), np.zeros(2, np.int32), history_fill("no"))
    with pytest.raises(TypeError):
        core.encode(*(array.astype(np.int64) for array in arrays), history_fill("no"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"micro_batch_size": 36}, "micro-batch size 36: expected a divisor of the batch size 96"),
        ({"micro_batch_size": 0}, "micro-batch size 0"),
        ({"num_threads": 0}, "0 loader threads"),
    ],
)
def test_settings_that_cannot_work_are_refused(window: Window, settings: dict[str, int], reason: str):
    with pytest.raises(ConfigError, match=reason):
        list(make_loader(window, **settings).iterate(0, 1))


def test_data_without_positions_or_of_another_game_is_refused(window: Window):
    empty = window_of([Game(chess.Board(), 1)])
    with pytest.raises(DataError, match="no positions"):
        make_loader(empty)
    with pytest.raises(ConfigError, match=r"is chess, .*connect4"):
        WindowEncoder(window, get_spec("connect4"), num_threads=1)


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("alphazero-loader")]


def test_prefetching_keeps_order_and_stays_within_its_depth():
    made: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            made.append(item)
            yield item

    ahead = 0
    for item in prefetched(items(), depth=3):
        time.sleep(0.005)
        ahead = max(ahead, len(made) - item - 1)
    assert made == list(range(20))
    assert 1 <= ahead <= 3
    assert not loader_threads()


def test_errors_of_the_background_thread_reach_the_consumer():
    def items() -> Iterator[int]:
        yield 1
        raise DataError("shard-0: broken")

    found = prefetched(items(), depth=2)
    assert next(found) == 1
    with pytest.raises(DataError, match="shard-0: broken"):
        next(found)
    assert not loader_threads()


def test_a_damaged_game_stops_the_training_iterator():
    loader = Loader(damaged(0, 2), CHESS, seed=0, batch_size=8, micro_batch_size=8, num_threads=2)
    with pytest.raises(DataError, match="game 1, ply 2"):
        list(loader.iterate(0, 3))
    assert not loader_threads()


def test_closing_or_dropping_the_iterator_ends_its_thread(window: Window):
    steps = make_loader(window).iterate(0, 10**9)
    next(steps)
    assert len(loader_threads()) == 1
    steps.close()
    assert not loader_threads()
    next(make_loader(window).iterate(0, 10**9))  # dropped at once
    assert not loader_threads()
    make_loader(window).iterate(0, 10**9)  # never started
    assert not loader_threads()


@pytest.mark.parametrize(("name", "num_moves"), [("connect4", 7), ("tictactoe", 5)])
def test_the_small_games_load_as_well(name: str, num_moves: int):
    line = _core.Connect4Line() if name == "connect4" else _core.TicTacToeLine()
    rng = random.Random(name)
    moves, packed, legal = [], [], []
    for _ in range(num_moves):
        packed.append(line.packed())
        legal.append(line.legal_indices().tolist())
        moves.append(rng.choice(line.legal()))
        line.push(moves[-1])
    view = dataclasses.replace(
        damaged(0, 0).shards[0],
        num_games=1,
        num_plies=num_moves,
        moves=np.array(moves, np.uint16),
        moves_offset=np.array([0, num_moves], np.int32),
        result=np.array([1], np.int8),
        result_valid=np.array([True]),
        fen_offset=np.array([0, 0], np.int32),
    )
    window = Window.of_shards(name, [view], ["x"])
    batch = WindowEncoder(window, get_spec(name), num_threads=2).encode(np.arange(num_moves))
    np.testing.assert_array_equal(batch.packed, packed)
    rows = np.split(batch.legal_index, batch.legal_offset[1:-1])
    assert [row.tolist() for row in rows] == legal
    assert batch.legal_index[batch.policy == 1].tolist() == moves
    assert batch.wdl.tolist() == [[1, 0, 0], [0, 0, 1]] * (num_moves // 2) + [[1, 0, 0]] * (num_moves % 2)
