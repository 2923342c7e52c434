"""Self-play that tablebases end: at the first position they know, with its result, the same games always."""

import shutil
from pathlib import Path

import chess
import chess.syzygy
import pytest

import alphazero._core as _core
from alphazero.base.errors import ConfigError, DataError
from alphazero.cli.main import main
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases
from alphazero.play import lanes
from alphazero.play.selfplay import describe, figures_of, tables_of
from alphazero.settings.self_play import SelfPlayConfig
from tests.support.evaluation.small_nets import write_small_net
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables
from tests.support.selfplay.few_pieces import played

pytestmark = pytest.mark.skipif(not has_tables(), reason=WHY_NOT)

LANES = 24


def ends_of(game: _core.SelfPlayGame) -> list[str]:
    """The FEN before each move and after the last one."""
    line, fens = make_line("chess"), []
    for move in game.moves.tolist():
        fens.append(str(line))
        line.push(move)
    return [*fens, str(line)]


@pytest.fixture(scope="module")
def tables() -> Tablebases:
    return Tablebases(str(SYZYGY), "--syzygy")


@pytest.fixture(scope="module")
def games(tables) -> dict[int, _core.SelfPlayGame]:
    return played(range(LANES), tables)


def test_games_end_at_the_first_position_of_the_tables_with_its_result(games) -> None:
    decided = [game for game in games.values() if game.end is _core.GameEnd.ADJUDICATED]
    assert len(decided) > LANES // 2 and {game.result for game in decided} >= {0, 1}
    with chess.syzygy.open_tablebase(str(SYZYGY)) as judge:
        for game in decided:
            *before, last = map(chess.Board, ends_of(game))
            assert all(len(board.piece_map()) > 4 or board.castling_rights for board in before)
            wdl = judge.probe_wdl(last)
            assert last.halfmove_clock == 0 and abs(wdl) != 1
            assert game.result == {2: 1, 0: 0, -2: -1}[wdl if last.turn else -wdl]
    for game in games.values():
        if game.end is not _core.GameEnd.ADJUDICATED:
            assert game.end is _core.GameEnd.RULES or len(game.moves) == 512


def test_the_games_are_the_same_for_any_lanes_threads_and_resumed_rounds(games, tables) -> None:
    some = played(range(0, LANES, 5), tables, threads=2)
    assert {*some} == {*range(0, LANES, 5)}
    # A round begins with a new tree, so games of short rounds are others, but the same among themselves.
    rounds = played(range(0, LANES, 7), tables, budget=600, rounds=60)
    again = played((7, 14), tables, budget=600, rounds=60, threads=2)
    assert {*rounds} == {*range(0, LANES, 7)} and {*again} == {7, 14}
    assert any(game.end is _core.GameEnd.ADJUDICATED for game in again.values())
    for found, expected in ((some, games), (again, rounds)):
        for number, game in found.items():
            assert lanes.to_batch([game]).equals(lanes.to_batch([expected[number]]))


def test_without_tables_the_games_go_on(games) -> None:
    without = played(range(0, LANES, 6), None)
    for number, game in without.items():
        own = games[number]
        assert game.end is not _core.GameEnd.ADJUDICATED
        assert game.moves[: len(own.moves)].tolist() == own.moves.tolist()


def test_the_store_calls_such_games_adjudicated(games) -> None:
    batch = lanes.to_batch([games[number] for number in sorted(games)])
    rows = lanes.store_rows(batch, "chess", "puct", "test").to_pylist()
    figures = figures_of(batch, "chess")
    share = sum(row["termination"] == "adjudicated" for row in rows) / len(rows)
    assert figures["adjudicated"] == share > 0.5
    assert f"{share:.0%} ended by tablebases" in describe(figures)


def test_tables_that_are_removed_during_play_are_an_error_of_one_line(tmp_path: Path) -> None:
    for path in SYZYGY.iterdir():
        shutil.copy(path, tmp_path)
    tables = Tablebases(str(tmp_path), "--syzygy")
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"^--syzygy .*\.rtb\w: .*No such"):
        played(range(4), tables, threads=2)


def test_a_command_that_cannot_use_the_tables_leaves_nothing_behind(tmp_path: Path, capsys) -> None:
    for game, place, problem in (
        ("connect4", SYZYGY, "this is connect4"),
        ("chess", "absent", "No such file"),
    ):
        weights = write_small_net(tmp_path / f"{game}.pt", game)
        argv = ["selfplay", "--weights", weights, "--out", str(tmp_path / "games"), "--games", "2"]
        assert main([*argv, "--syzygy", str(place)]) == 2
        (told,) = capsys.readouterr().err.strip().splitlines()
        assert told.startswith("alphazero: error: --syzygy ") and problem in told
        assert not (tmp_path / "games").exists()


def test_tables_are_opened_for_chess_alone(tmp_path: Path) -> None:
    assert tables_of(SelfPlayConfig(), "connect4") is None
    with pytest.raises(ConfigError, match=r"^--syzygy .*connect4$"):
        tables_of(SelfPlayConfig(syzygy=str(SYZYGY)), "connect4")
    with pytest.raises(ConfigError, match="directory of Syzygy"):
        tables_of(SelfPlayConfig(syzygy=str(tmp_path / "absent")), "chess")
