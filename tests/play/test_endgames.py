"""Games of chess that begin with few pieces: python-chess knows the positions, and every way of the games."""

import dataclasses

import chess
import pyarrow as pa
import pytest

from alphazero.base.errors import ConfigError, DataError
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.games.registry import make_line
from alphazero.play import lanes as games
from alphazero.play.actors.arrival import check_shard
from alphazero.play.actors.pointers import PlaceSettings
from alphazero.play.actors.shard import shard_of
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import Played, check_endgames, check_lanes, lanes_of, new_lane, play
from alphazero.settings.load import load_config
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator

SEARCH = SearchConfig(algorithm="gumbel", simulations=4)
OWN = SelfPlayConfig(endgame_share=0.5, max_plies=60)


def played(lanes, moves: int = 150, own: SelfPlayConfig = OWN) -> Played:
    begun = [new_lane(lane) if isinstance(lane, int) else lane for lane in lanes]
    return play("chess", self_play_settings(SEARCH, own, seed=5), begun, moves, MadeUpEvaluator("chess", 8))


@pytest.fixture(scope="module")
def whole() -> Played:
    return played(range(12))


def test_half_of_the_games_begin_with_four_to_ten_pieces_and_are_played_to_their_end(whole):
    starts = [game.start for game in (*whole.finished, *whole.under_way) if game.start]
    assert 0.3 < len(starts) / len([*whole.finished, *whole.under_way]) < 0.7
    assert len({*starts}) == len(starts)
    sizes = {len(chess.Board(fen).piece_map()) for fen in starts}
    assert sizes <= set(range(4, 11)) and len(sizes) > 4
    assert {chess.Board(fen).turn for fen in starts} == {chess.WHITE, chess.BLACK}
    for fen in starts:
        assert chess.Board(fen).is_valid() and not chess.Board(fen).is_game_over(claim_draw=True)
    results = {"1-0": 1, "0-1": -1}
    for row in games.store_rows(games.to_batch(whole.finished), "chess", "gumbel", "x").to_pylist():
        board = chess.Board(row["start_fen"] or chess.STARTING_FEN)
        line = make_line("chess", row["start_fen"])
        for move in row["moves"]:
            assert not board.is_game_over()
            board.push_uci(line.move_to_text(move))
            line.push(move)
        if row["termination"] in ("checkmate", "stalemate"):
            assert results.get(board.result(), 0) == row["result"] and board.is_game_over()


def test_they_are_the_same_over_ranks_and_after_a_stop(whole):
    parts = [played(lanes_of(rank, 3, 12)) for rank in range(3)]
    together = games.concatenated([games.to_batch(part.finished) for part in parts])
    assert together.equals(games.to_batch(whole.finished))
    first = played(range(12), 40)
    content = games.to_bytes(games.to_batch(first.under_way))
    kept = games.from_batch(games.from_bytes(content, "lanes"), under_way=True)
    check_lanes("chess", kept, "lanes")
    then = played(kept, 110)
    both = games.concatenated([games.to_batch(one.finished) for one in (first, then)])
    assert both.equals(games.to_batch(whole.finished))


def test_lanes_of_an_older_checkpoint_began_with_the_usual_position():
    batch = games.to_batch(played(range(3), 5, SelfPlayConfig()).under_way)
    old = batch.drop_columns(["start"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, old.schema) as writer:
        writer.write_batch(old)
    assert games.from_bytes(sink.getvalue().to_pybytes(), "lanes").equals(batch)


def test_a_store_and_a_learner_take_them(whole, tmp_path):
    batch = games.to_batch(whole.finished)
    GrowingStore(tmp_path / "store", "chess").append(games.store_rows(batch, "chess", "gumbel", "x"))
    assert GameStore.open(tmp_path / "store").verify() is None
    settings = PlaceSettings("chess", 1000, 3, "fp32", SEARCH, OWN)
    shard = shard_of("0123456789abcdef", 7, batch, 20, "")
    assert check_shard(*shard, settings, {20}).batch.num_rows == batch.num_rows
    none = dataclasses.replace(settings, self_play=dataclasses.replace(OWN, endgame_share=0.0))
    with pytest.raises(DataError, match=r"game \d+: begins with \S+, as no game here does"):
        check_shard(*shard, none, {20})


def test_other_games_have_none():
    with pytest.raises(ConfigError, match=r"--endgame-share 0.5: endgames are of chess; this is connect4"):
        check_endgames(load_config("", {"endgame_share": "0.5"}), "connect4")
