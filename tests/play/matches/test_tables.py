"""Games of matches that tablebases end: the right result in every position, in PGN, and what is refused."""

import itertools
import re
import shutil

import chess.pgn
import chess.syzygy
import pytest

from alphazero.cli.main import main
from alphazero.games.tablebases import Tablebases
from alphazero.play.matches.game import Adjudication, Decision, Ending, LiveGame, Pairing
from alphazero.play.matches.limits import Limit
from alphazero.play.matches.openings import Opening
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables, pawn_wins, positions, rook_wins

pytestmark = pytest.mark.skipif(not has_tables(), reason=WHY_NOT)


@pytest.mark.parametrize(
    ("pieces", "wins", "is_won"),
    [("KRk", rook_wins, True), ("KPk", pawn_wins, False), ("KPk", pawn_wins, True)],
)
def test_the_verdict_is_right_in_100_of_100_positions(pieces, wins, is_won) -> None:
    rules = Adjudication(syzygy=str(SYZYGY))
    tables = Tablebases(rules.syzygy, "--syzygy")
    right = 0
    strong_moves = positions(pieces, 7, lambda board: True, True)
    for board in itertools.islice(goes_on(strong_moves, wins, is_won), 100):
        start, move = board.root().fen(), board.peek().uci()
        pairing = Pairing(1, 0, 0, 1, Opening(start, ()))
        over = LiveGame("chess", pairing, rules, Limit(nodes=1), Limit(nodes=1), tables).play(Decision(move))
        assert over is not None and over.ending is Ending.ADJUDICATION
        strong_is_white = not board.turn
        points = 0.5 if not is_won else 1.0 if strong_is_white else 0.0
        winner = "Draw" if not is_won else "White wins" if strong_is_white else "Black wins"
        right += over.points == points and over.reason == f"{winner} by adjudication: tablebases"
    assert right == 100


def goes_on(boards, wins, is_won):
    """Positions after a move of the stronger side that are won or not, and not over."""
    for board in boards:
        for move in list(board.legal_moves):
            board.push(move)
            if wins(board) == is_won and not board.is_game_over():
                yield board
                break
            board.pop()


def test_games_go_on_where_tables_know_nothing() -> None:
    rules = Adjudication(syzygy=str(SYZYGY))
    tables = Tablebases(rules.syzygy, "--syzygy")
    for start, move in ((None, "e2e4"), ("r3k3/8/8/8/8/8/8/4K3 w q - 0 1", "e1f2")):
        game = LiveGame(
            "chess", Pairing(1, 0, 0, 1, Opening(start, ())), rules, Limit(nodes=1), Limit(nodes=1), tables
        )
        assert game.play(Decision(move)) is None


def test_a_match_ends_games_by_tables_and_says_so_in_pgn(tmp_path, capsys) -> None:
    book, pgn, state = tmp_path / "book.epd", tmp_path / "games.pgn", tmp_path / "state"
    book.write_text("8/8/8/3k4/8/8/8/R3K2R w - - 0 1\n8/8/8/3k4/3p4/8/3P4/3K4 w - - 0 1\n")
    argv = ["match", "--player", "random", "name=a", "--player", "random", "name=b", "--games", "8"]
    argv += ["--openings", str(book), "--pgn-out", str(pgn), "--resume", str(state)]
    assert main([*argv, "--syzygy", str(SYZYGY)]) == 0
    lines = capsys.readouterr().err
    with pgn.open() as file:
        games = list(iter(lambda: chess.pgn.read_game(file), None))
    assert len(games) == 8
    with chess.syzygy.open_tablebase(str(SYZYGY)) as judge:
        for game in games:
            assert game.headers["Termination"] == "adjudication"
            end = game.end()
            assert re.search(r"(Draw|(White|Black) wins) by adjudication: tablebases$", end.comment)
            wdl = judge.probe_wdl(end.board()) * (1 if end.turn() else -1)
            assert game.headers["Result"] == {2: "1-0", 0: "1/2-1/2", -2: "0-1"}[wdl]
            assert len(end.board().piece_map()) <= 4
    assert lines.count("by adjudication: tablebases}") == 8
    # Other tables make another match.
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    shutil.copy(SYZYGY / "KRvK.rtbw", fewer)
    assert main([*argv, "--games", "12", "--syzygy", str(fewer)]) == 2
    assert "--syzygy" in capsys.readouterr().err


def test_a_directory_without_tables_ends_the_match_before_it_begins(tmp_path, capsys) -> None:
    argv = ["match", "--player", "random", "name=a", "--player", "random", "name=b", "--games", "2"]
    assert main([*argv, "--syzygy", str(tmp_path / "absent")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1 and "--syzygy" in told[0] and "expected a directory of Syzygy tables" in told[0]


def test_tables_are_of_chess(capsys) -> None:
    argv = ["match", "--player", "solver", "--player", "random", "--games", "2"]
    assert main([*argv, "--syzygy", str(SYZYGY)]) == 2
    assert "tablebases are of chess; this is connect4" in capsys.readouterr().err
