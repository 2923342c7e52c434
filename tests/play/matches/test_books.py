"""Books of openings: what they give, and errors that name file and line."""

import bz2
import gzip
import os
import re
from pathlib import Path

import chess
import pytest

from alphazero.base.errors import DataError
from alphazero.play.matches.openings import BALANCED, Opening, chess960_starts, in_order, read_book

ITALIAN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"
GAMES = """[Event "a"]
[Result "*"]

1. e4 {best by test} e5 (1... c5 2. Nf3) 2. Nf3 Nc6 *


[Event "b"]
[SetUp "1"]
[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]

1. e4 Ke7 1-0
"""


def test_epd_lines_with_and_without_operations_and_fens_are_positions(tmp_path) -> None:
    book = tmp_path / "book.epd"
    fields = ITALIAN.rsplit(" ", 2)[0]
    book.write_text(f'# comment\n\n{fields} hmvc 3; fmvn 3; id "Italian";\n{ITALIAN}\n{fields}\n')
    found = read_book(book)
    assert [opening.start for opening in found[:2]] == [ITALIAN, ITALIAN]
    assert found[2].start == f"{fields} 0 1"
    assert found[0].line("chess").num_plies == 0


def test_pgn_games_are_lines_of_so_many_plies(tmp_path) -> None:
    book = tmp_path / "book.pgn"
    book.write_text(GAMES)
    first, second = read_book(book)
    assert first == Opening(None, ("e2e4", "e7e5", "g1f3", "b8c6"))
    assert second == Opening("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", ("e2e4", "e8e7"))
    assert [opening.moves for opening in read_book(book, 1)] == [("e2e4",), ("e2e4",)]


def test_books_of_chess960_have_castling_rights_as_x_fen_or_shredder_fen(tmp_path) -> None:
    """The inner rook may castle, en passant is kept, and a PGN game castles on its way."""
    epd, pgn = tmp_path / "book.epd", tmp_path / "book.pgn"
    inner = "2k2rr1/pppppppp/8/8/8/8/PPPPPPPP/2K2RR1 w {} - 0 1"
    epd.write_text("\n".join(inner.format(rights) for rights in ("Kk", "Gg", "Ff")) + f"\n{ITALIAN}\n")
    found = read_book(epd, chess960=True)
    assert [opening.start.split()[2] for opening in found] == ["Kk", "Kk", "Ff", "KQkq"]
    assert all(opening.chess960 for opening in found)
    for opening in found:
        board = chess.Board(opening.start, chess960=True)
        legal = {move.uci() for move in board.legal_moves}
        line = opening.line("chess")
        assert {board.parse_uci(line.move_to_text(move)).uci() for move in line.legal()} == legal
    start = chess.Board.from_chess960_pos(3).fen()
    pgn.write_text(f'[Variant "fischerandom"]\n[SetUp "1"]\n[FEN "{start}"]\n\n1. O-O d5 2. d4 O-O *\n')
    (opening,) = read_book(pgn, chess960=True)
    castled = chess.Board(start, chess960=True)
    for move in opening.moves:
        castled.push_uci(move)
    assert str(opening.line("chess")).split()[0] == castled.fen().split()[0]
    for book, place in ((epd, r"book\.epd:1"), (pgn, r"book\.pgn:1")):
        with pytest.raises(
            DataError, match=rf"{place}: .*standard chess \(Chess960: --variant fischerandom\)"
        ):
            read_book(book)
    starts = chess960_starts()
    assert len({opening.start for opening in starts}) == 960
    assert starts[518] == Opening(chess.STARTING_FEN, chess960=True)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "a.epd",
            f"{ITALIAN}\n\nno position at all\n",
            r"a\.epd:3: 'no position at all': expected a position",
        ),
        ("a.epd", "8/8/8/8/8/8/8/K1k5 w - -\nk7/8/K7/8/8/8/8/8/8 w - -\n", r"a\.epd:1: .*the game is over"),
        ("a.epd", "8/8/8/8/8/8/8/8 w - -\n", r"a\.epd:1: .*expected a legal position"),
        ("a.epd", "# nothing\n", r"a\.epd: no openings"),
        ("a.pgn", GAMES.replace("Ke7", "Ke1"), r"a\.pgn:7: .*Ke1.*expected a game of legal moves"),
        ("a.pgn", "", r"a\.pgn: no openings"),
        (
            "a.pgn",
            GAMES + '\n[Event "c"]\n\n1. e4 -- *\n',
            r"a\.pgn:13: a null move \(--\); expected a game of legal",
        ),
        (
            "a.pgn",
            GAMES + '\n[Event "c"]\n\n1. Z0 e5 *\n',
            r"a\.pgn:13: a null move \(--\); expected a game of legal",
        ),
        ("none.pgn", None, r"none\.pgn: cannot read: No such file"),
        ("a.bin", "\0" * 16, r"a\.bin: Polyglot"),
        ("a.book", "\0" * 16, r"a\.book: binary data; expected openings"),
    ],
)
def test_a_fault_in_a_book_is_named_by_file_and_line(tmp_path, name, text, told, capfd) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_book(path)
    assert re.search(told, str(caught.value)) and "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_books_are_read(tmp_path, suffix, pack) -> None:
    for name, text in (("a.epd", f"{ITALIAN}\n"), ("a.pgn", GAMES)):
        plain, packed = tmp_path / name, tmp_path / (name + suffix)
        plain.write_text(text)
        packed.write_bytes(pack(text.encode()))
        assert read_book(packed) == read_book(plain)


def test_a_pipe_and_a_device_are_refused_at_once(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.epd")
    for path in (tmp_path / "pipe.epd", Path("/dev/zero"), tmp_path):
        with pytest.raises(DataError, match=f"{path}: this is no file; expected a file of openings"):
            read_book(path)


def test_the_book_of_this_program_is_balanced_and_of_different_positions() -> None:
    found = read_book(BALANCED)
    assert len(found) == len({opening.start for opening in found}) == 500
    for opening in found:
        assert opening.start is not None
        board = chess.Board(opening.start)
        assert board.fullmove_number == 5 and board.turn == chess.WHITE


def test_openings_come_in_the_book_s_order_or_that_of_the_seed_and_repeat_at_its_end() -> None:
    book = [Opening(None, (move,)) for move in ("e2e4", "d2d4", "c2c4")]
    assert in_order(book, 5, False, 0) == [*book, *book[:2]]
    shuffled = in_order(book, 3, True, 7)
    assert sorted(shuffled, key=book.index) == book and in_order(book, 3, True, 7) == shuffled
    assert {tuple(in_order(book, 3, True, seed)) for seed in range(20)} != {tuple(book)}
