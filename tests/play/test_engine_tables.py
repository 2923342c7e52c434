"""The engine with tablebases: won endgames stay won, drawn ones drawn; the tree's positions; a lost file."""

import itertools
import random
import shutil

import chess
import numpy as np
import pytest

from alphazero.base.errors import AlphaZeroError
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases
from alphazero.search.tables import SearchTables, board_of
from alphazero.search.tree_search import SearchLimits, TreeSearch
from tests.support.games.endgames import SYZYGY, WHY_NOT, has_tables, pawn_wins, positions, rook_wins
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator
from tests.support.uci.driving import DrivenEngine

pytestmark = pytest.mark.skipif(not has_tables(), reason=WHY_NOT)

NODES = 8


def can_be_spoilt(wins):
    """Accepts positions in which some move of the side to move changes the result, by `wins`."""

    def accepts(board: chess.Board) -> bool:
        results = set()
        for move in board.legal_moves:
            board.push(move)
            results.add(wins(board))
            board.pop()
        return len(results) == 2

    return accepts


def kept(engine: DrivenEngine, boards: list[chess.Board], wins) -> int:
    """In how many of the positions the engine's move keeps the result."""
    count = 0
    for board in boards:
        before = wins(board)
        board.push_uci(engine.best_move(f"position fen {board.fen()}", f"go nodes {NODES}"))
        count += wins(board) == before
    return count


# The side to move has what the capital letters say, or faces it.
@pytest.mark.parametrize(
    ("pieces", "wins", "is_won", "strong"),
    [
        ("KRk", rook_wins, True, True),
        ("KRk", rook_wins, True, False),
        ("KPk", pawn_wins, True, True),
        ("KPk", pawn_wins, False, False),
        ("KPk", pawn_wins, False, True),
    ],
)
def test_the_move_keeps_the_result_in_100_of_100_positions(pieces, wins, is_won, strong) -> None:
    spoils = can_be_spoilt(wins)
    can_fail = strong == is_won  # the side whose mistake would change the result

    def accepts(board: chess.Board) -> bool:
        return wins(board) == is_won and (not can_fail or spoils(board))

    boards = list(itertools.islice(positions(pieces, 3, accepts, strong), 100))
    value = 0 if not is_won else 1 if strong else -1
    with DrivenEngine(SyzygyPath=str(SYZYGY), UCI_ShowWDL="true") as engine:
        assert kept(engine, [board.copy() for board in boards], wins) == 100
        infos = [line for line in engine.lines if " score " in line and " mate " not in line]
    wdl = {1: "wdl 1000 0 0", 0: "wdl 0 1000 0", -1: "wdl 0 0 1000"}[value]
    cp = {1: "cp 12", 0: "cp 0 ", -1: "cp -12"}[value]
    assert infos and all(wdl in line and f"score {cp}" in line for line in infos)
    assert not any(" tbhits 0" in line for line in infos)
    if can_fail:
        with DrivenEngine() as engine:  # the same search without tables spoils some
            assert kept(engine, boards, wins) < 100


@pytest.mark.slow
def test_a_won_endgame_is_won_against_the_best_defence_whatever_the_network_thinks() -> None:
    with DrivenEngine(SyzygyPath=str(SYZYGY)) as engine:
        tables = Tablebases(str(SYZYGY), "test")
        for start in itertools.islice(positions("KRk", 4, rook_wins, True), 2):
            fen, board, moves = start.fen(), start, []
            while not board.is_game_over(claim_draw=True):
                if len(moves) % 2 == 0:
                    move = engine.best_move(
                        f"position fen {fen} moves {' '.join(moves)}", f"go nodes {NODES}"
                    )
                else:
                    line = make_line("chess", board.fen())
                    replies = [line.move_to_text(each) for each in line.legal()]
                    move = max(replies, key=lambda text: farthest(tables, board, text))
                moves.append(move)
                board.push_uci(move)
            assert board.is_checkmate(), board.fen()


def farthest(tables: Tablebases, board: chess.Board, text: str) -> int:
    board.push_uci(text)
    distance = 1000 if tables.result(board.copy()) == 0 else abs(tables._tables.probe_dtz(board))
    board.pop()
    return distance


def test_moves_that_are_asked_for_are_ranked_among_themselves() -> None:
    with DrivenEngine(SyzygyPath=str(SYZYGY)) as engine:
        fen = "position fen 8/8/8/8/8/8/k7/1R1K4 w - - 0 1"  # the rook is attacked
        assert engine.best_move(fen, "go nodes 20 searchmoves d1e1 d1c1 b1b2") == "d1c1"
        assert engine.best_move(fen, "go nodes 20 searchmoves d1e1") == "d1e1"


def test_the_nearest_mate_is_played_where_that_is_asked_for() -> None:
    with DrivenEngine(SyzygyPath=str(SYZYGY), SyzygyFastPlay="true") as engine:
        engine.send("position fen k7/8/1K6/8/8/8/8/7R w - - 0 1", "go nodes 5")
        *_, info, answer = engine.until("bestmove")
        assert answer == "bestmove h1h8" and "score mate 1" in info


def test_packed_positions_become_the_same_board_seen_by_white() -> None:
    rng = random.Random(5)
    for _ in range(300):
        board = chess.Board(None)
        signs = "Kk" + "".join(rng.choices("QRBNPqrbnp", k=3))
        for sign, square in zip(signs, rng.sample(range(64), 5), strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(sign))
        board.turn = rng.random() < 0.5
        if not board.is_valid():
            continue
        packed = make_line("chess", board.fen()).packed()
        seen = board_of(packed[:832].view(np.uint64).tolist())
        assert seen.fen().split()[:4] == (board if board.turn else board.mirror()).fen().split()[:4]
    line = make_line("chess", "8/4p3/8/3P4/8/8/8/k1K5 b - - 0 1")
    line.push_text("e7e5")
    assert str(line).split()[3] == "e6"
    assert board_of(line.packed()[:832].view(np.uint64).tolist()).ep_square == chess.E6
    same = make_line("chess", str(line))  # from a FEN the pawn's step is history that is filled in
    assert board_of(same.packed()[:832].view(np.uint64).tolist()).ep_square == chess.E6


def test_captures_into_the_tables_have_their_exact_value_in_the_tree_and_nothing_below() -> None:
    tables, said = Tablebases(str(SYZYGY), "test"), []
    probe = SearchTables(tables, said.append)
    search = TreeSearch("chess", MadeUpEvaluator("chess", 8), tables=probe)
    checked = set()
    won, drawn = (positions(pieces, 6, has_capture, True) for pieces in ("KRRkr", "KNNkr"))
    for board in [*itertools.islice(won, 10), *itertools.islice(drawn, 10)]:
        line = make_line("chess", board.fen())
        assert probe.begin(line, (), fast=False) is None
        search.set_line(line)
        found = search.search(SearchLimits(nodes=400), num_lines=60)
        for report in found.moves:
            child = board.copy()
            child.push_uci(report.text)
            if report.visits and report.proven is None and len(child.piece_map()) == 4:
                expected = -tables.result(child.fen())
                assert report.q == expected and report.wdl[1] == (expected == 0)
                assert len(report.pv) == 1
                checked.add(expected)
        assert probe.hits > 0
    assert checked == {0, 1} and not said
    search.close()


def has_capture(board: chess.Board) -> bool:
    return any(map(board.is_capture, board.legal_moves))


def test_a_position_that_was_decided_in_the_tree_is_searched_when_it_is_reached() -> None:
    probe = SearchTables(Tablebases(str(SYZYGY), "test"), print)
    search = TreeSearch("chess", MadeUpEvaluator("chess", 8), tables=probe)
    line = make_line("chess", "8/8/8/4k3/8/3r4/8/R2RK3 w - - 0 1")
    search.set_line(line)
    search.search(SearchLimits(nodes=300))
    line.push_text("d1d3")
    assert search.set_line(line) == 0  # its value says nothing of its moves
    found = search.search(SearchLimits(nodes=50))
    assert found.nodes == 50 and len(found.moves) == len(line.legal())
    search.close()


def test_positions_beyond_the_tables_cost_the_search_nothing_and_change_nothing() -> None:
    probe = SearchTables(Tablebases(str(SYZYGY), "test"), print)
    line = make_line("chess")
    found = []
    for tables in (None, probe):
        search = TreeSearch("chess", MadeUpEvaluator("chess", 8), tables=tables)
        search.set_line(line)
        found.append(
            [(move.text, move.visits, move.q) for move in search.search(SearchLimits(nodes=300)).moves]
        )
        search.close()
    assert found[0] == found[1] and probe.hits == 0


def test_a_wrong_path_is_refused_at_the_start_and_reported_later(tmp_path) -> None:
    with pytest.raises(AlphaZeroError, match=r"^SyzygyPath '.*absent': No such"):
        DrivenEngine(SyzygyPath=str(tmp_path / "absent"))
    with DrivenEngine() as engine:
        engine.send(f"setoption name SyzygyPath value {tmp_path}", "isready")
        told = engine.until("readyok")
        assert any("no tables" in line and line.endswith("option unchanged") for line in told)
        engine.send(
            f"setoption name syzygypath value {SYZYGY}", "position fen 8/8/8/8/8/8/k7/1R1K4 w - - 0 1"
        )
        engine.send("go nodes 5")
        assert " tbhits 1 " in engine.until("bestmove")[-2]
        engine.send("setoption name SyzygyPath value <empty>", "go nodes 5")
        assert " tbhits 0 " in engine.until("bestmove")[-2]


def test_the_fifty_move_rule_of_tables_is_an_option() -> None:
    late = "position fen 4k3/8/8/8/8/8/8/R3K3 w - - 90 80"
    with DrivenEngine(SyzygyPath=str(SYZYGY), UCI_ShowWDL="true") as engine:
        for value, wdl in (("true", "0 1000 0"), ("false", "1000 0 0"), ("true", "0 1000 0")):
            engine.send(f"setoption name Syzygy50MoveRule value {value}", late, "go nodes 5")
            told = engine.until("bestmove")[-2]
            assert f" wdl {wdl} " in told and " tbhits 1 " in told
        engine.send("setoption name Syzygy50MoveRule value no", "isready")
        assert any("true or false" in line for line in engine.until("readyok"))
    with DrivenEngine(SyzygyPath=str(SYZYGY), Syzygy50MoveRule="false", UCI_ShowWDL="true") as engine:
        engine.send(late, "go nodes 5")
        assert " wdl 1000 0 0 " in engine.until("bestmove")[-2]


def test_tables_that_are_removed_are_said_once_and_the_engine_plays_on(tmp_path) -> None:
    shutil.copy(SYZYGY / "KRvK.rtbw", tmp_path)
    with DrivenEngine(SyzygyPath=str(tmp_path)) as engine:
        (tmp_path / "KRvK.rtbw").unlink()
        for _ in range(3):
            assert engine.best_move("position fen 8/8/8/8/8/8/k7/1R1K4 w - - 0 1", "go nodes 5") != "0000"
        said = [line for line in engine.lines if "KRvK.rtbw: cannot be read" in line]
    assert len(said) == 1 and said[0].endswith("tablebases are no longer used")
