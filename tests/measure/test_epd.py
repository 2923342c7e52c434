"""EPD suites: read as python-chess reads them, faults by file and line, and what is solved."""

import re
from collections.abc import Mapping
from pathlib import Path

import chess
import pytest
import zstandard

from alphazero.base.errors import DataError
from alphazero.games.core_types import Line
from alphazero.measure.epd import EpdPosition, read_epd
from alphazero.measure.puzzles import failures

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -"
MATE_IN_1 = "6k1/5ppp/8/8/8/8/8/R5K1 w - - bm Ra8#"


def texts(position: EpdPosition, moves: frozenset[int]) -> set[str]:
    """Moves as UCI."""
    return {position.line().move_to_text(move) for move in moves}


def read(directory: Path, *lines: str) -> list[EpdPosition]:
    file = directory / "suite.epd"
    file.write_text("\n".join(lines) + "\n")
    return read_epd(file)


def test_a_suite_is_read_as_python_chess_reads_it(shared_data: Path):
    file = shared_data / "bratko-kopec.epd"
    positions, lines = read_epd(file), file.read_text().splitlines()
    assert len(positions) == len(lines) == 24
    for position, text in zip(positions, lines, strict=True):
        board = chess.Board()
        known = board.set_epd(text)
        assert position.name == known["id"] and not position.avoid
        assert texts(position, position.best) == {move.uci() for move in known["bm"]}
        assert str(position.line()).split()[:4] == board.epd(en_passant="legal").split()[:4]


def test_moves_are_san_with_or_without_marks_or_uci_and_operations_stand_in_any_order(tmp_path: Path):
    found = read(
        tmp_path,
        "# a comment",
        f'{START} id "one; two"; bm e4 Nf3 d2d4;',
        "",
        f'{START} 0 1 am f3 g4; c0 "not these"; acd 20',
        "r3k2r/8/8/8/8/8/6p1/R3K2R b KQkq - hmvc 3; bm gxh1=Q+ O-O;am Kd8;",
        "6k1/5ppp/8/8/8/8/8/R5K1 w - - 12 40 bm a1a8",
    )
    assert [position.name for position in found] == ["one; two", *(f"suite.epd:{n}" for n in (4, 5, 6))]
    assert texts(found[0], found[0].best) == {"e2e4", "g1f3", "d2d4"}
    assert texts(found[1], found[1].avoid) == {"f2f3", "g2g4"} and not found[1].best
    assert texts(found[2], found[2].best) == {"g2h1q", "e8g8"}
    assert str(found[3].line()) == "6k1/5ppp/8/8/8/8/8/R5K1 w - - 12 40"
    line = found[1].line()
    assert found[1].judge(line, line.text_to_move("e2e4"))
    assert not found[1].judge(line, line.text_to_move("g2g4"))


def test_packed_suites_are_read(tmp_path: Path):
    file = tmp_path / "suite.epd.zst"
    file.write_bytes(zstandard.compress(f"{MATE_IN_1};\n".encode() * 3))
    assert len(read_epd(file)) == 3


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (f"{START} bm e5;", "e5"),
        (f"{START} am Ke2; bm e4;", "Ke2"),
        (f"{START} bm --;", "--"),
        (f'{START} id "x";', 'id "x"'),
        (f"{START} bm;", "bm;"),
        (START, START),
        ("8/8/8/8/8/8/8/K7 w - - bm Ka2;", "king"),
        ("nonsense", "nonsense"),
        ("rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - bm a3;", "a3"),
        ("8/8/8/8/8/2k5/8/K7 w - - bm Kb1;", "2k5"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_value(tmp_path: Path, line: str, value: str):
    with pytest.raises(DataError, match=f"suite.epd:2: .*{re.escape(value)}.*expected"):
        read(tmp_path, f"{MATE_IN_1};", line)


def test_a_file_without_positions_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"suite.epd: no"):
        read(tmp_path, "# nothing")
    with pytest.raises(DataError, match=r"epd: .*No such"):
        read_epd(tmp_path / "none.epd")


def test_a_player_s_moves_are_judged(tmp_path: Path):
    positions = read(tmp_path, f"{START} bm e4;", f"{START} am e4;", f"{START} bm e4 d4; am a3;")

    def always_e4(lines: Mapping[int, Line]) -> list[int]:
        return [line.text_to_move("e2e4") for line in lines.values()]

    assert failures(positions, always_e4, 2, lambda number: None) == [None, "e4", None]
