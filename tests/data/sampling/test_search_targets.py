"""Targets from searches: sparse policies and values, against python-chess and sums done by hand."""

import dataclasses
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.data.sampling.loader import Loader, WindowEncoder
from alphazero.data.sampling.window import Window
from alphazero.games.registry import get_spec
from tests.support.data.chess_games import chess_row, random_games, searched_chess_row, window_of_rows
from tests.support.data.stores import grown, row, searched
from tests.support.games.chess_reference import core_move, positions_of

CHESS, CONNECT4, TICTACTOE = (get_spec(name) for name in ("chess", "connect4", "tictactoe"))


def mixed_games(seed: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Games of python-chess, and rows of them: two of three searched."""
    games = random_games(45, seed, 40)
    rng = random.Random(seed)
    rows = [searched_chess_row(g, rng) if i % 3 else chess_row(g) for i, g in enumerate(games)]
    return games, rows


def expected_samples(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Game and ply of every sample, in order."""
    return [
        (index, ply)
        for index, game in enumerate(rows)
        for ply in range(len(game["moves"]))
        if game["result"] is not None and ("flags" not in game or game["flags"][ply] & 1)
    ]


def policy_of(game: dict[str, Any], ply: int) -> dict[int, int]:
    if "flags" not in game:
        return {}
    begin, end = game["policy_offsets"][ply : ply + 2]
    return dict(zip(game["policy_move"][begin:end], game["policy_prob"][begin:end], strict=True))


def expected_wdl(game: dict[str, Any], ply: int, white: bool, ratio: float) -> list[float]:
    """The blend as alphazero/data's format says it, in exact fractions until the end."""
    result = game["result"] if white else -game["result"]
    known = [Fraction(int(result == outcome)) for outcome in (1, 0, -1)]
    if not sum(policy_of(game, ply).values()):
        return [float(share) for share in known]
    q, d = (Fraction(float(np.float32(game[name][ply]))) for name in ("root_q", "root_d"))
    d = min(d, 1 - abs(q))
    share = Fraction(ratio)
    value = [(1 - d + q) / 2, d, (1 - d - q) / 2]
    return [float((1 - share) * k + share * v) for k, v in zip(known, value, strict=True)]


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_targets_are_those_of_the_search_where_there_was_one(tmp_path: Path, ratio: float):
    games, rows = mixed_games("targets")
    window = window_of_rows(tmp_path / "s", rows[:20], rows[20:])
    encoder = WindowEncoder(window, CHESS, num_threads=2, value_q_ratio=ratio)
    batch = encoder.encode(np.arange(window.num_samples))
    samples = expected_samples(rows)
    assert window.num_samples == len(samples)
    num_searched = 0
    for at, (index, ply) in enumerate(samples):
        board = positions_of(games[index].board)[ply]
        line = _core.ChessLine(board.fen())
        begin, end = batch.legal_offset[at : at + 2]
        policy = batch.policy[begin:end]
        codes = {line.move_to_index(core_move(board, m)): core_move(board, m) for m in board.legal_moves}
        assert batch.legal_index[begin:end].tolist() == sorted(codes)
        shares = policy_of(rows[index], ply)
        total = sum(shares.values())
        num_searched += total > 0
        if total == 0:
            shares, total = {rows[index]["moves"][ply]: 1}, 1
        wanted = [Fraction(shares.get(codes[i], 0), total) for i in sorted(codes)]
        np.testing.assert_allclose(policy, [float(w) for w in wanted], rtol=0, atol=2**-20)
        assert [p == 0 for p in policy] == [w == 0 for w in wanted]
        assert abs(math.fsum(policy.tolist()) - 1) <= 2**-25, "within half a step of float32 below 1"
        wdl = expected_wdl(rows[index], ply, board.turn == chess.WHITE, ratio)
        np.testing.assert_allclose(batch.wdl[at], wdl, rtol=0, atol=2**-24)
        assert batch.moves_left[at] == len(rows[index]["moves"]) - ply
    assert 100 < num_searched < len(samples) - 100


def test_only_plies_with_a_full_search_are_samples(tmp_path: Path):
    _, rows = mixed_games("samples")
    window = window_of_rows(tmp_path / "s", rows[:7], rows[7:8], rows[8:])
    first_game = np.array([0, 7, 8])
    places = window.locate(np.arange(window.num_samples))
    found = list(zip((first_game[places.shard] + places.game).tolist(), places.ply.tolist(), strict=True))
    assert found == expected_samples(rows)
    shuffled = np.random.default_rng(0).permutation(window.num_samples)
    np.testing.assert_array_equal(window.locate(shuffled).ply, places.ply[shuffled])
    for begin in (0, 5, window.num_games - 1):
        part = window.games_from(begin)
        offset = window.num_samples - part.num_samples
        np.testing.assert_array_equal(part.locate(np.arange(part.num_samples)).ply, places.ply[offset:])


def test_another_flag_makes_another_window(tmp_path: Path):
    plain = row("connect4", [3, 3, 3], 1)
    windows = [
        window_of_rows(
            tmp_path / str(index), [searched(plain, flags, [[(3, 65535)]] * 3, [0.0] * 3, [0.0] * 3)]
        )
        for index, flags in enumerate(([1, 0, 1], [1, 1, 0], [1, 0, 1]))
    ]
    assert [w.num_samples for w in windows] == [2, 2, 2]
    assert windows[0].id == windows[2].id != windows[1].id


def test_a_game_whose_plies_all_were_fast_has_no_samples(tmp_path: Path):
    quick = searched(row("connect4", [0, 1], 0), [0, 2], [[(0, 9)], [(1, 9)]], [0.0] * 2, [1.0] * 2)
    window = window_of_rows(tmp_path / "s", [quick, row("connect4", [2], 1), quick])
    assert (window.num_games, window.num_samples) == (1, 1)
    assert window.locate(np.array([0])).game.tolist() == [1]


def test_tic_tac_toe_by_hand(tmp_path: Path):
    """X a1 (0), O b2 (4), X c3 (8): drawn in the end. The second ply was searched."""
    plain = row("tictactoe", [0, 4, 8], 0)
    policies = [[(0, 5)], [(4, 49152), (8, 16384)], []]
    game = searched(plain, [1, 1, 1], policies, [0.5, -0.25, 0.75], [0.25, 0.5, 0.0])
    window = window_of_rows(tmp_path / "s", [game])
    batch = WindowEncoder(window, TICTACTOE, num_threads=1, value_q_ratio=0.5).encode(np.arange(3))
    assert batch.legal_index.tolist() == [*range(9), *range(1, 9), 1, 2, 3, 5, 6, 7, 8]
    assert batch.policy[:9].tolist() == [1.0] + [0.0] * 8
    assert batch.policy[9:17].tolist() == [0, 0, 0, 0.75, 0, 0, 0, 0.25]
    assert batch.policy[17:].tolist() == [0] * 6 + [1.0], "no policy: the move played"
    # W = (1 - d + q) / 2: (0.625, 0.25, 0.125), (0.125, 0.5, 0.375); half of it and half a draw.
    assert batch.wdl.tolist() == [[0.3125, 0.625, 0.0625], [0.0625, 0.75, 0.1875], [0, 1, 0]]
    assert batch.moves_left.tolist() == [3, 2, 1]


def test_connect_four_values_are_the_movers_and_clipped(tmp_path: Path):
    """The second player wins; values beyond their bounds are cut before they are shared out."""
    plain = row("connect4", [0, 1, 0, 1], -1)
    game = searched(plain, [1] * 4, [[(0, 1)]] * 4, [1.00001, -1.5, 0.5, 0.25], [0.5, 0.1, 0.75, -0.5])
    window = window_of_rows(tmp_path / "s", [game])
    searched_only = WindowEncoder(window, CONNECT4, num_threads=1, value_q_ratio=1.0).encode(np.arange(4))
    assert searched_only.wdl.tolist() == [[1, 0, 0], [0, 0, 1], [0.5, 0.5, 0], [0.625, 0, 0.375]]
    results_only = WindowEncoder(window, CONNECT4, num_threads=1).encode(np.arange(4))
    assert results_only.wdl.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_thirds_sum_to_one(tmp_path: Path):
    policy = [(0, 1), (1, 1), (2, 1)]
    window = window_of_rows(tmp_path / "s", [searched(row("connect4", [0], 0), [1], [policy], [0.0], [1.0])])
    batch = WindowEncoder(window, CONNECT4, num_threads=1).encode(np.arange(1))
    third = float(np.float32(1 / 3))
    assert batch.policy.tolist() == [float(np.float32(1 - 2 * third)), third, third, 0, 0, 0, 0]
    assert math.fsum(batch.policy.tolist()) == 1.0


def test_the_number_of_threads_changes_no_byte(tmp_path: Path):
    _, rows = mixed_games("threads")
    window = window_of_rows(tmp_path / "s", rows)
    ids = np.random.default_rng(2).integers(0, window.num_samples, 1500)
    batches = [
        WindowEncoder(window, CHESS, num_threads=threads, value_q_ratio=0.3).encode(ids)
        for threads in (1, 2, 3, 8)
    ]
    for field in dataclasses.fields(batches[0]):
        assert len({getattr(batch, field.name).tobytes() for batch in batches}) == 1, field.name


def test_a_loader_passes_the_ratio_on(tmp_path: Path):
    game = searched(row("connect4", [0], 1), [1], [[(0, 1)]], [0.0], [1.0])
    window = window_of_rows(tmp_path / "s", [game])
    loader = Loader(window, CONNECT4, seed=0, batch_size=2, micro_batch_size=2, value_q_ratio=0.25)
    assert loader.step(0)[0].batch.wdl.tolist() == [[0.75, 0.25, 0]] * 2
    with pytest.raises(ConfigError, match=r"value_q_ratio 1\.5"):
        WindowEncoder(window, CONNECT4, num_threads=1, value_q_ratio=1.5)


def test_position_keys_are_those_of_the_samples(tmp_path: Path):
    """Connect Four: after 0 1 and after 1 0 the boards differ, a game searched twice has equal keys."""
    plain = row("connect4", [0, 1, 2, 3], 1)
    fast = searched(plain, [0, 1, 0, 1], [[(0, 1)], [(1, 1)], [(2, 1)], [(3, 1)]], [0.0] * 4, [0.0] * 4)
    window = window_of_rows(tmp_path / "s", [plain], [fast, plain])
    keys = WindowEncoder(window, CONNECT4, num_threads=1).position_keys().tolist()
    assert len(set(keys[:4])) == 4
    assert keys == [*keys[:4], keys[1], keys[3], *keys[:4]]


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (7, "move 7 of its policy is not legal"),
        (0xFFFF, "move 65535 of its policy is not legal"),
        (3, "move 3 of its policy is there twice"),
    ],
)
def test_a_policy_with_a_wrong_move_is_an_error_that_names_shard_game_and_ply(
    tmp_path: Path, move: int, words: str
):
    good = searched(row("connect4", [3], 1), [1], [[(3, 5)]], [0.0], [0.0])
    bad = searched(
        row("connect4", [3, 3, 3], 1),
        [1] * 3,
        [[(3, 5)], [(3, 5)], [(3, 5), (move, 6)]],
        [0.0] * 3,
        [0.0] * 3,
    )
    store = grown(tmp_path / "s", [good, bad])
    for num_threads in (1, 3):
        encoder = WindowEncoder(Window.of_stores([store]), CONNECT4, num_threads=num_threads)
        encoder.encode(np.arange(3))
        with pytest.raises(DataError, match=rf"00000\.arrow: game 1, ply 2: {words}$"):
            encoder.encode(np.arange(4))
    with pytest.raises(DataError, match=words.replace("its policy", "the policy")):
        store.verify()


@pytest.mark.parametrize("shares", [(0, 6), (6, 0), (0, 0)])
def test_a_move_twice_is_refused_whatever_its_shares_are(tmp_path: Path, shares: tuple[int, int]):
    bad = searched(row("connect4", [3], 1), [1], [[(3, shares[0]), (3, shares[1])]], [0.0], [0.0])
    store = grown(tmp_path / "s", [bad])
    encoder = WindowEncoder(Window.of_stores([store]), CONNECT4, num_threads=1)
    with pytest.raises(DataError, match=r"move 3 .*twice"):
        encoder.encode(np.arange(1))
    with pytest.raises(DataError, match=r"move 3 .*twice in "):
        store.verify()


def test_columns_that_change_while_they_are_read_are_errors_and_nothing_worse(tmp_path: Path):
    """A file that another process writes to changes under the views: nothing is read beyond a column."""
    _, rows = mixed_games("changing")
    rng = np.random.default_rng(8)
    refused = 0
    names = ("moves", "moves_offset", "fen_offset", "result")
    (view,) = window_of_rows(tmp_path / "s", rows).shards
    for _ in range(200):
        assert view.search is not None
        copies = {name: getattr(view, name).copy() for name in names}
        flags, policy_offsets, policy_move = (
            column._replace(offset=column.offset.copy(), values=column.values.copy())
            for column in (view.search.flags, view.search.policy_offsets, view.search.policy_move)
        )
        search = dataclasses.replace(
            view.search, flags=flags, policy_offsets=policy_offsets, policy_move=policy_move
        )
        changing = dataclasses.replace(view, search=search, **copies)
        window = Window.of_shards("chess", [changing], ["x"])
        encoder = WindowEncoder(window, CHESS, num_threads=2, value_q_ratio=0.5)
        searches = (flags.offset, *policy_offsets[:2], *policy_move[:2])
        for column in (*copies.values(), *searches):
            if rng.integers(3) == 0 and len(column):
                limits = np.iinfo(column.dtype)
                places = rng.integers(0, len(column), 1 + len(column) // 10)
                column[places] = rng.integers(limits.min, limits.max, len(places), endpoint=True)
        try:
            encoder.encode(rng.integers(0, window.num_samples, 200))
            encoder.position_keys()
        except DataError:
            refused += 1
    assert refused > 150


def test_a_chess_policy_must_name_the_move_itself_not_only_its_index(tmp_path: Path):
    """lc0 has one index for a plain move and a promotion to a knight: e7e8 without a piece is no move."""
    fen = "8/4P1k1/8/8/8/8/8/4K3 w - - 0 1"
    line = _core.ChessLine(fen)
    knight = chess.E7 | chess.E8 << 6 | 1 << 12
    bare = chess.E7 | chess.E8 << 6
    assert line.move_to_index(knight) == line.move_to_index(bare)
    for move, is_legal in ((knight, True), (bare, False)):
        plain = row("chess", [knight], 1, start_fen=fen)
        store = grown(tmp_path / str(move), [searched(plain, [1], [[(move, 9)]], [0.0], [0.0])])
        encoder = WindowEncoder(Window.of_stores([store]), CHESS, num_threads=1)
        if is_legal:
            encoder.encode(np.arange(1))
            store.verify()
        else:
            with pytest.raises(DataError, match="policy is not"):
                encoder.encode(np.arange(1))
            with pytest.raises(DataError, match=r"row 0, ply 0: move 3892 .*8/4P1k1"):
                store.verify()


@pytest.mark.parametrize("name", ["root_q", "root_d"])
def test_a_value_that_is_no_number_is_an_error_where_it_is_used(tmp_path: Path, name: str):
    game = searched(row("connect4", [3], 1), [1], [[(3, 5)]], [0.0], [0.0])
    window = window_of_rows(tmp_path / "s", [{**game, name: [math.nan]}])
    WindowEncoder(window, CONNECT4, num_threads=1).encode(np.arange(1))
    with pytest.raises(DataError, match=r"game 0, ply 0: .*finite"):
        WindowEncoder(window, CONNECT4, num_threads=1, value_q_ratio=0.1).encode(np.arange(1))


def test_noise_in_the_policies_never_crashes(tmp_path: Path):
    _, rows = mixed_games("noise")
    store = grown(tmp_path / "s", rows)
    (good,) = store.shards
    assert good.search is not None
    rng = np.random.default_rng(7)
    tried = refused = 0
    for trial in range(60):
        changes = {}
        for name in ("policy_move", "policy_prob", "policy_offsets", "flags"):
            column = getattr(good.search, name).values.copy()
            where = rng.integers(0, len(column), rng.choice([0, 1, 20]))
            column[where] = rng.integers(0, np.iinfo(column.dtype).max, len(where))
            changes[name] = getattr(good.search, name)._replace(values=column)
        view = dataclasses.replace(good, search=dataclasses.replace(good.search, **changes))
        window = Window.of_shards("chess", [view], [str(trial)])
        try:
            encoder = WindowEncoder(window, CHESS, num_threads=2)
        except DataError as error:
            assert "offsets" in str(error)
            refused += 1
            continue
        for start in range(0, window.num_samples, 16):
            tried += 1
            try:
                encoder.encode(np.arange(start, min(start + 16, window.num_samples)))
            except DataError as error:
                assert "of its policy" in str(error)
                refused += 1
    assert refused > 50 and tried - refused > 50


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0), (1, 2), (2, 1), (2, 2)])
def test_joined_windows_find_the_searched_plies_of_both(tmp_path: Path, order: tuple[int, int]):
    """0 and 1 hold searched games among others, 2 holds none."""
    _, rows = mixed_games("joined")
    parts = [rows[:20], rows[20:], [game for game in rows if "flags" not in game]]
    windows = [window_of_rows(tmp_path / str(index), part) for index, part in enumerate(parts)]
    first, second = (windows[index] for index in order)
    skipped = 2
    joined = Window.joined(first, second.games_from(skipped))
    places = joined.locate(np.arange(joined.num_samples))
    wanted = expected_samples(parts[order[0]])
    tail = expected_samples(parts[order[1]])
    counting = sorted({game for game, _ in tail})[skipped:]
    wanted += [(game, ply) for game, ply in tail if game in counting]
    assert list(zip(places.game.tolist(), places.ply.tolist(), strict=True)) == wanted
    assert places.shard.tolist() == [0] * first.num_samples + [1] * (len(wanted) - first.num_samples)


def test_joined_windows_that_begin_elsewhere_are_named_otherwise(tmp_path: Path):
    """Five games of one ply each either way: which one is missing is in the name."""
    a, b = (window_of_rows(tmp_path / str(column), [row("connect4", [column], 1)] * 3) for column in (0, 1))
    one, other = Window.joined(a.games_from(1), b), Window.joined(a, b.games_from(1))
    assert one.num_samples == other.num_samples == one.num_games == other.num_games == 5
    assert one.id != other.id
