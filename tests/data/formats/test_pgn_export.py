"""Games of a store as PGN: python-chess reads the games, the values and the clocks; so do we."""

import gzip
import io
import random
from pathlib import Path
from typing import Any

import chess
import chess.engine
import chess.pgn
import pyarrow as pa
import pytest

from alphazero.base.errors import DataError
from alphazero.data.formats.importer import import_games
from alphazero.data.formats.pgn_export import export_pgn
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import row_schema
from tests.support.data.chess_games import chess_row, random_games, searched_chess_row
from tests.support.data.stores import grown


def games_in(text: str) -> list[chess.pgn.Game]:
    stream, games = io.StringIO(text), []
    while (game := chess.pgn.read_game(stream)) is not None:
        assert not game.errors
        games.append(game)
    return games


def test_games_of_any_start_are_read_back(tmp_path: Path):
    played = random_games(30, "pgn export", max_plies=40)
    rng = random.Random(1)
    rows = [chess_row(g) if n % 2 else searched_chess_row(g, rng) for n, g in enumerate(played)]
    for row, game in zip(rows, played, strict=True):
        row |= {"variant": "chess960" if game.board.chess960 else "standard", "white": 'a "b"\\'}
    num_games, _ = export_pgn(grown(tmp_path / "store", rows), tmp_path / "games.pgn")
    assert num_games == 30
    for game, before in zip(games_in((tmp_path / "games.pgn").read_text()), played, strict=True):
        assert game.board().epd() == before.board.root().epd()
        assert list(game.mainline_moves()) == before.board.move_stack
        assert game.headers["Result"] == {1: "1-0", 0: "1/2-1/2", -1: "0-1", None: "*"}[before.result]
        assert game.headers["White"] == r"a \"b\"\\"  # python-chess leaves escapes as they are
    import_games([tmp_path / "games.pgn"], tmp_path / "again", workers=1)
    (shard,) = GameStore.open(tmp_path / "again").shards
    assert shard.table.column("moves").to_pylist() == [row["moves"] for row in rows]
    assert set(shard.table.column("white").to_pylist()) == {'a "b"\\'}


def one_game(tmp_path: Path, **columns: Any) -> chess.pgn.Game:
    plies = {"flags": [1, 1, 0], "root_q": [0.5, -0.25, 0.0], "root_d": [0.25, 0.5, 0.0]}
    plies |= {"best_q": plies["root_q"], "visits": [800, 801, 0]}
    moves = [chess.E2 | chess.E4 << 6, chess.E7 | chess.E5 << 6, chess.G1 | chess.F3 << 6]
    row = {"game": "chess", "variant": "standard", "source": "x", "moves": moves, "result": 0, **plies}
    row |= {"policy_offsets": [0] * 4, "policy_move": [], "policy_prob": [], **columns}
    store = GrowingStore(tmp_path / "store", "chess")
    schema = row_schema(set(columns) - {"event"})
    store.append(pa.RecordBatch.from_pylist([row], schema=schema))
    export_pgn(GameStore.open(tmp_path / "store"), tmp_path / "game.pgn.gz")
    (game,) = games_in(gzip.decompress((tmp_path / "game.pgn.gz").read_bytes()).decode())
    return game


def test_searched_moves_have_values_for_white_and_visits(tmp_path: Path):
    first, second, third = one_game(tmp_path).mainline()
    # 90 tan(1.5637541897 * 0.5) and of -(-0.25), which is for White what Black's search said.
    assert first.eval() == chess.engine.PovScore(chess.engine.Cp(89), chess.WHITE)
    assert second.eval() == chess.engine.PovScore(chess.engine.Cp(37), chess.WHITE)
    assert "q=+0.500 d=0.250 n=800" in first.comment
    assert "q=-0.250 d=0.500 n=801" in second.comment
    assert not third.comment


def test_stored_evaluations_and_clocks_are_told(tmp_path: Path):
    game = one_game(
        tmp_path,
        eval_cp=[35, None, None],
        eval_mate=[None, -3, None],
        eval_depth=[20, None, None],
        eval_source=[1, 1, None],
        clock_ms=[65_000, None, 3_600_500],
        time_control="300+3",
    )
    first, second, third = game.mainline()
    assert first.eval() == chess.engine.PovScore(chess.engine.Cp(35), chess.WHITE)
    assert first.eval_depth() == 20
    assert second.eval() == chess.engine.PovScore(chess.engine.Mate(-3), chess.WHITE)
    assert (first.clock(), second.clock(), third.clock()) == (65.0, None, 3600.5)
    assert game.headers["TimeControl"] == "300+3"


def test_a_value_of_the_move_played_is_told_before_that_of_the_position(tmp_path: Path):
    first, second, _ = one_game(tmp_path, played_q=[0.0, float("nan"), float("nan")]).mainline()
    assert first.eval() == chess.engine.PovScore(chess.engine.Cp(0), chess.WHITE)
    assert second.eval() == chess.engine.PovScore(chess.engine.Cp(37), chess.WHITE)


def test_files_that_are_there_and_other_games_are_refused(tmp_path: Path):
    store = grown(tmp_path / "store", [chess_row(game) for game in random_games(2, "two")])
    path = tmp_path / "games.pgn"
    export_pgn(store, path, first=1, count=5)
    assert len(games_in(path.read_text())) == 1
    with pytest.raises(DataError, match=r"games\.pgn: already"):
        export_pgn(store, path)
    with pytest.raises(DataError, match="none from game 2"):
        export_pgn(store, tmp_path / "none.pgn", first=2)
    with pytest.raises(DataError, match=r"games\.pgn\.bz2: expected a name ending in \.pgn or \.pgn\.gz"):
        export_pgn(store, tmp_path / "games.pgn.bz2")
    row = {"game": "connect4", "variant": "standard", "source": "x", "moves": [3], "result": 1}
    with pytest.raises(DataError, match="PGN knows chess alone"):
        export_pgn(grown(tmp_path / "other", [row]), tmp_path / "none.pgn")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["games.pgn", "other", "store"]
