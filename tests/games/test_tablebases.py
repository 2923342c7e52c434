"""Tablebases: what they know against endgames solved without them, the moves they choose, what is refused."""

import itertools
import os
import random
import shutil

import chess
import chess.syzygy
import pytest

from alphazero.base.errors import ConfigError, DataError
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases
from tests.support.games.endgames import (
    SYZYGY,
    WHY_NOT,
    has_tables,
    number_of_wins,
    pawn_wins,
    positions,
    rook_wins,
)

needs_tables = pytest.mark.skipif(not has_tables(), reason=WHY_NOT)


@pytest.fixture(scope="module")
def tables() -> Tablebases:
    return Tablebases(str(SYZYGY), "--syzygy")


def test_king_and_pawn_solved_here_has_as_many_wins_as_stockfish_s_bitbase() -> None:
    assert number_of_wins() == 111_282  # asserted in Stockfish's bitbase.cpp


@needs_tables
@pytest.mark.parametrize(("pieces", "wins"), [("KRk", rook_wins), ("KPk", pawn_wins)])
def test_results_are_those_of_endgames_solved_without_tables(tables, pieces, wins) -> None:
    seen = set()
    for strong in (True, False):
        for board in itertools.islice(positions(pieces, 1, lambda board: True, strong), 1000):
            expected = (1 if strong else -1) if wins(board) else 0
            assert tables.result(board.fen()) == expected, board.fen()
            seen.add(expected)
    assert seen == {-1, 0, 1}


@needs_tables
def test_what_tables_cannot_know_is_none(tables) -> None:
    assert tables.most_pieces == 4
    assert tables.result(chess.STARTING_FEN) is None
    assert tables.result("4k3/8/8/8/8/8/8/R3K3 w Q - 0 1") is None
    assert tables.result("4k3/8/8/8/8/8/8/R3K3 w - - 0 1") == 1
    assert tables.best_moves(make_line("chess")) is None
    assert tables.best_moves(make_line("chess", "4k3/8/8/8/8/8/8/R3K3 w Q - 0 1")) is None


@needs_tables
def test_the_fifty_move_rule_counts(tables) -> None:
    # python-chess: White needs 27 plies from here. A table may say n for n + 1.
    place = "4k3/8/8/8/8/8/8/R3K3 w - - {} 80"
    with chess.syzygy.open_tablebase(str(SYZYGY)) as judge:
        plies = judge.probe_dtz(chess.Board(place.format(0)))
    found = {clock: tables.result(place.format(clock)) for clock in range(60, 100)}
    assert {clock for clock, result in found.items() if result == 1} == set(range(60, 100 - plies))
    assert [clock for clock, result in found.items() if result is None] == [100 - plies]
    assert found[99] == 0


@needs_tables
def test_a_win_that_comes_too_late_is_drawn(tables) -> None:
    # Bishop and knight mate in up to 33 moves; 30 plies are left.
    with chess.syzygy.open_tablebase(str(SYZYGY)) as judge:
        rng, late = random.Random(2), []
        while len(late) < 3:
            board = chess.Board(None)
            for sign, square in zip("KBNk", rng.sample(range(64), 4), strict=True):
                board.set_piece_at(square, chess.Piece.from_symbol(sign))
            board.halfmove_clock = 70
            if board.is_valid() and board.turn and judge.get_dtz(board, 0) > 30:
                late.append(board.fen())
    assert [tables.result(fen) for fen in late] == [0, 0, 0]


@pytest.mark.slow
@needs_tables
def test_without_the_fifty_move_rule_a_win_is_one_whatever_the_clock(tables, monkeypatch) -> None:
    """python-chess's WDL knows no clock; among moves those stay the best that the rule could spoil last."""
    open_ended = Tablebases(str(SYZYGY), "--syzygy", fifty_moves=False)
    with chess.syzygy.open_tablebase(str(SYZYGY)) as judge:
        for board in itertools.islice(positions("KRk", 4, lambda board: True, True), 40):
            board.halfmove_clock = 95
            wdl = judge.probe_wdl(board)
            assert open_ended.result(board.fen()) == (wdl > 0) - (wdl < 0)
            line = make_line("chess", board.fen())
            within, without = tables.best_moves(line), open_ended.best_moves(line)
            assert without.result == open_ended.result(board.fen())
            if wdl == 2 and judge.probe_dtz(board) > 5:
                assert within.result == 0 and within.moves == without.moves
    last = make_line("chess", "4k3/8/8/8/8/8/8/R3K3 w - - 99 80")
    assert tables.best_moves(last).result == 0 and open_ended.best_moves(last).result == 1
    for wdl in (-1, 1):  # a blessed loss and a cursed win, which tables of up to 4 pieces do not have
        for of in (tables, open_ended):
            monkeypatch.setattr(of._tables, "probe_wdl", lambda board, wdl=wdl: wdl)
        fen = "4k3/8/8/8/8/8/8/R3K3 w - - 0 1"
        assert tables.result(fen) == 0 and open_ended.result(fen) == wdl


@needs_tables
def test_the_best_moves_keep_the_result_and_shorten_the_way_where_it_matters(tables) -> None:
    line = make_line("chess", "k7/8/1K6/8/8/8/8/7R w - - 0 1")
    every, nearest = tables.best_moves(line), tables.best_moves(line, fast=True)
    assert every is not None and nearest is not None and every.result == nearest.result == 1
    assert [line.move_to_text(move) for move in nearest.moves] == ["h1h8"]  # mate
    assert len(every.moves) == 20 and {*nearest.moves} < {*every.moves}
    # Moves that were asked for, the one that gives the rook away among them.
    lone = make_line("chess", "8/8/8/8/8/2k5/8/R1K5 w - - 0 1")
    moves = {text: lone.text_to_move(text) for text in ("a1a2", "a1b1", "c1d1")}
    some = tables.best_moves(lone, [*moves.values()])
    assert some is not None and {*some.moves} == {*moves.values()}
    # A position that has come back calls for the shortest way.
    for text in ("h1g1", "a8b8", "g1h1", "b8a8"):
        line.push_text(text)
    again = tables.best_moves(line)
    assert again is not None and again.moves == nearest.moves


@needs_tables
def test_no_move_that_wins_lets_the_other_side_claim_the_third_repetition(tables) -> None:
    line = make_line("chess", "8/8/8/k7/8/3NB3/8/K7 w - - 0 1")
    for text in ["a1b2", "a5a6", "b2a1", "a6a5", "a1b2", "a5a6", "b2a1", "a6b5"]:
        line.push_text(text)
    found = tables.best_moves(line)
    assert found is not None and found.result == 1
    for fast in (False, True):
        texts = {line.move_to_text(move) for move in tables.best_moves(line, fast=fast).moves}
        assert "d3e5" in texts and "a1b2" not in texts  # of the same DTZ; python-chess sees the claim
    board = chess.Board("8/8/8/k7/8/3NB3/8/K7 w - - 0 1")
    for text in ["a1b2", "a5a6", "b2a1", "a6a5", "a1b2", "a5a6", "b2a1", "a6b5", "a1b2"]:
        board.push_uci(text)
    assert board.can_claim_threefold_repetition()
    # Where that is the only move, it is played, for a draw.
    only = tables.best_moves(line, [line.text_to_move("a1b2")])
    assert only is not None and only.result == 0 and len(only.moves) == 1


@needs_tables
def test_without_dtz_tables_the_result_alone_chooses(tmp_path) -> None:
    for path in SYZYGY.glob("*.rtbw"):
        (tmp_path / path.name).symlink_to(path)
    tables = Tablebases(str(tmp_path), "--syzygy")
    assert tables.identity.startswith("35 WDL and 0 DTZ tables of up to 4 pieces")
    assert tables.result("4k3/8/8/8/8/8/8/R3K3 w - - 0 1") == 1
    assert tables.result("4k3/8/8/8/8/8/8/R3K3 w - - 1 1") is None
    board = chess.Board("8/8/8/8/8/8/k7/1R1K4 w - - 0 1")  # the rook is attacked
    line = make_line("chess", board.fen())
    found = tables.best_moves(line)
    assert found is not None and found.result is None
    keeping = set()
    for move in list(board.legal_moves):
        board.push(move)
        keeping |= {move.uci()} if rook_wins(board) else set()
        board.pop()
    assert {line.move_to_text(move) for move in found.moves} == keeping
    assert {"d1c1", "b1b8"} < keeping and not {"d1e1", "b1b2", "b1a1"} & keeping


@needs_tables
def test_a_missing_table_is_unknown_and_several_directories_count_together(tmp_path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, name in ((first, "KRvK"), (second, "KPvK")):
        directory.mkdir()
        for suffix in (".rtbw", ".rtbz"):
            shutil.copy(SYZYGY / f"{name}{suffix}", directory)
    rook, pawn = "4k3/8/8/8/8/8/8/R3K3 w - - 0 1", "8/8/8/8/8/2k5/2P5/K7 w - - 0 1"
    assert Tablebases(str(first), "--syzygy").result(pawn) is None
    assert Tablebases(str(first), "--syzygy").best_moves(make_line("chess", pawn)) is None
    both = Tablebases(os.pathsep.join(map(str, (first, second))), "--syzygy")
    assert both.result(rook) == 1 and both.result(pawn) == 0
    assert both.identity != Tablebases(str(first), "--syzygy").identity


def test_a_directory_without_tables_is_refused(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "readme.rtbw").write_bytes(b"no table")
    for name, problem in {
        "absent": "No such file or directory",
        "empty": "no tables",
        "file": "Not a directory",
        "names": "no tables",
    }.items():
        with pytest.raises(
            ConfigError, match=rf"^--syzygy '.*{name}': {problem}; expected .*Syzygy"
        ) as caught:
            Tablebases(str(tmp_path / name), "--syzygy")
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        Tablebases(f"{tmp_path / 'names'}{os.pathsep}", "--syzygy")


@needs_tables
@pytest.mark.parametrize("damage", ["cut", "foreign", "empty"])
def test_a_damaged_file_is_named_when_the_tables_are_opened(tmp_path, damage) -> None:
    shutil.copy(SYZYGY / "KPvK.rtbw", tmp_path)
    content = (SYZYGY / "KRvK.rtbw").read_bytes()
    spoiled = {"cut": content[:-20], "foreign": b"PK\x03\x04" + content[4:], "empty": b""}[damage]
    (tmp_path / "KRvK.rtbw").write_bytes(spoiled)
    with pytest.raises(DataError, match=r"KRvK\.rtbw: damaged, of"):
        Tablebases(str(tmp_path), "--syzygy")


@needs_tables
@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_table_that_lacks_blocks_is_an_error_of_one_line(tmp_path, blocks) -> None:
    content = (SYZYGY / "KPvK.rtbw").read_bytes()
    (tmp_path / "KPvK.rtbw").write_bytes(content[: 64 * blocks + 16])
    tables = Tablebases(str(tmp_path), "--syzygy")
    with pytest.raises(DataError, match=r"KPvK.rtbw: damaged"):
        tables.result("8/8/8/8/8/2k5/2P5/K7 w - - 0 1")


@needs_tables
def test_tables_removed_after_they_were_opened_are_an_error_of_one_line(tmp_path) -> None:
    shutil.copy(SYZYGY / "KRvK.rtbw", tmp_path)
    tables = Tablebases(str(tmp_path), "--syzygy")
    (tmp_path / "KRvK.rtbw").unlink()
    with pytest.raises(DataError, match=r"rtbw: .*No such"):
        tables.result("4k3/8/8/8/8/8/8/R3K3 w - - 0 1")
