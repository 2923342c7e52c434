"""Games of self-play as Arrow: nothing is lost on the way, whoever played which."""

import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.play import lanes as games
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import check_lanes, figures_of, new_lane, play
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

FIELDS = (
    *("lane", "number", "end", "termination", "result", "plays_through", "resign_ply"),
    *(
        "moves",
        "flags",
        "root_q",
        "root_d",
        "best_q",
        "best_d",
        "orig_q",
        "orig_d",
        "visits",
        "policy_offset",
        "policy_move",
        "policy_prob",
    ),
)


@pytest.fixture(scope="module")
def played():
    own = SelfPlayConfig(opening_plies=3, full_search_share=0.5, fast_simulations=4, resign_threshold=0.1)
    settings = self_play_settings(SearchConfig(simulations=12, dirichlet_alpha=1.0), own, seed=3)
    return play("connect4", settings, [new_lane(i) for i in range(12)], 60, MadeUpEvaluator("connect4", 8))


def same(left, right) -> bool:
    return all(_equal(getattr(left, name), getattr(right, name)) for name in FIELDS)


def _equal(left, right) -> bool:
    is_float = getattr(left, "dtype", None) == np.float32
    return np.array_equal(left, right, equal_nan=is_float)


def test_a_game_comes_back_from_arrow_as_it_was(played) -> None:
    for some in (played.finished, played.under_way):
        batch = games.from_bytes(games.to_bytes(games.to_batch(some)), "here")
        assert all(map(same, some, games.from_batch(batch)))
        assert len(some) == batch.num_rows > 0


def test_games_of_two_ranks_together_are_those_of_one(played) -> None:
    whole = games.to_batch(played.finished)
    odd = [game for game in played.finished if game.lane % 2]
    even = [game for game in played.finished if not game.lane % 2]
    together = games.concatenated([games.to_batch(odd), games.to_batch(even)])
    assert games.to_bytes(together) == games.to_bytes(whole)


def test_no_games_are_a_batch_without_rows() -> None:
    assert games.concatenated([games.to_batch([])]).num_rows == 0


def test_rows_of_the_store_have_its_schema_and_the_games_moves(played) -> None:
    rows = games.store_rows(games.to_batch(played.finished), "connect4", "gumbel", "generation 7")
    assert rows.schema.equals(games.STORE_SCHEMA)
    for game, row in zip(played.finished, rows.to_pylist(), strict=True):
        assert row["moves"] == list(game.moves)
        assert row["result"] == game.result
        assert row["policy_offsets"] == list(game.policy_offset)
        assert row["event"] == "generation 7" and row["target_kind"] == "completed_q"
        assert row["termination"] in ("win", "board_full", "resignation")


def test_every_full_search_has_a_policy_that_sums_to_one_and_quick_ones_have_none(played) -> None:
    for game in played.finished:
        lengths = np.diff(game.policy_offset)
        assert np.array_equal(lengths > 0, game.flags == 1)
        for begin, end in pairwise(game.policy_offset):
            if end > begin:
                assert abs(int(game.policy_prob[begin:end].astype(int).sum()) - 65535) <= end - begin


def test_figures_are_those_counted_by_hand(played) -> None:
    figures = figures_of(games.to_batch(played.finished), "connect4")
    assert figures["games"] == len(played.finished)
    assert figures["plies"] == pytest.approx(np.mean([len(game.moves) for game in played.finished]))
    assert figures["positions"] == sum(int((game.flags & 1).sum()) for game in played.finished)
    entropies = [
        -sum(p / 65535 * np.log(p / 65535) for p in game.policy_prob[begin:end].tolist())
        for game in played.finished
        for begin, end in pairwise(game.policy_offset)
        if end > begin
    ]
    assert figures["policy_entropy"] == pytest.approx(np.mean(entropies))
    tried = [game for game in played.finished if game.plays_through and game.resign_ply >= 0]
    wrong = [game for game in tried if (game.result if game.resign_ply % 2 == 0 else -game.result) >= 0]
    assert tried and figures["wrong_resignations"] == pytest.approx(len(wrong) / len(tried))


def test_damaged_bytes_and_other_columns_are_named() -> None:
    with pytest.raises(DataError, match=r"lanes\.arrow"):
        games.from_bytes(b"no arrow file", "lanes.arrow")
    with pytest.raises(DataError, match=r"lanes\.arrow: "):  # an OSError of Arrow's: a footer of nothing
        games.from_bytes(b"ARROW1\0\0" + bytes(64) + struct.pack("<i", 64) + b"ARROW1", "lanes.arrow")
    with pytest.raises(DataError, match="columns"):
        games.from_batch(pa.RecordBatch.from_pydict({"lane": [1]}))


def changed(batch: pa.RecordBatch, name: str, value: object) -> pa.RecordBatch:
    """The batch with another value of a column in row 1."""
    rows = batch.to_pylist()
    rows[1][name] = value
    return pa.RecordBatch.from_pylist(rows, games.GAME_SCHEMA)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("end", "RULES", "lanes: row 1: the game ended by RULES; expected one in progress"),
        ("end", "NOBODY", "lanes: row 1: 'NOBODY' ends no game"),
        ("termination", "NOTHING", "lanes: row 1: 'NOTHING' ends no game"),
        ("flags", [], r"lanes: row 1: 0 entries of flags; expected \d+"),
        ("policy_offset", [], r"lanes: row 1: 0 entries of policy_offset; expected \d+"),
        ("policy_prob", [1], r"lanes: row 1: 1 entries of policy_prob; expected \d+"),
    ],
)
def test_games_that_do_not_fit_together_are_refused(played, name: str, value: object, words: str) -> None:
    batch = games.to_batch(played.under_way)
    with pytest.raises(DataError, match=f"^{words}"):
        games.from_batch(changed(batch, name, value), "lanes", under_way=True)


def test_policy_offsets_stay_within_their_game(played) -> None:
    batch = games.to_batch(played.under_way)
    offsets = batch.column("policy_offset")[1].as_py()
    for wrong in ([*offsets[:-1], offsets[-1] + 1], [1, *offsets[1:]], [0, 2**31, *offsets[2:]]):
        with pytest.raises(DataError, match="row 1: policy offsets"):
            games.from_batch(changed(batch, "policy_offset", wrong), "lanes")


def test_a_lane_whose_game_is_over_is_refused_before_anything_is_played(played) -> None:
    """Searching a finished position ended the process (SIGSEGV)."""
    over, *_ = games.from_batch(games.to_batch(played.finished))
    over_by_rules, *_ = games.from_batch(
        games.to_batch([game for game in played.finished if game.end is _core.GameEnd.RULES])
    )
    over_by_rules.end = _core.GameEnd.NONE
    for game in (over, over_by_rules):
        with pytest.raises(DataError, match=r"lane \d+, game \d+: .*over"):
            check_lanes("connect4", [game], "lanes")
    check_lanes("connect4", played.under_way, "lanes")
    wrong, *_ = games.from_batch(games.to_batch(played.under_way))
    wrong.moves = np.array([9], np.uint16)
    with pytest.raises(DataError, match="move 9 is not"):
        check_lanes("connect4", [wrong], "lanes")


def test_damaged_bytes_never_crash(played) -> None:
    content = games.to_bytes(games.to_batch(played.under_way))
    rng = np.random.default_rng(5)
    read = 0
    for _ in range(400):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), 3):
            damaged[at] ^= 1 << int(rng.integers(8))
        try:
            check_lanes(
                "connect4", games.from_batch(games.from_bytes(bytes(damaged), "x"), under_way=True), "x"
            )
            read += 1
        except DataError as error:
            assert "\n" not in str(error)
    assert read < 400


def test_what_the_search_and_the_network_said_is_kept(played) -> None:
    for game in played.finished:
        searched = game.visits > 0
        assert (np.isnan(game.orig_q) == ~searched).all()
        for q, d in ((game.best_q, game.best_d), (game.orig_q, game.orig_d)):
            assert (np.abs(q[searched]) + d[searched] <= 1 + 1e-5).all() and (d[searched] >= 0).all()
    (row,) = games.store_rows(games.to_batch(played.finished[:1]), "connect4", "puct", "x").to_pylist()
    assert np.array_equal(row["orig_q"], played.finished[0].orig_q, equal_nan=True)
