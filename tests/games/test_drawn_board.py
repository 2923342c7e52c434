"""Boards that rules outside the core draw: OpenSpiel's own names of moves say which squares they mean."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from alphazero.games.outside.drawn_board import cells_of_drawing, squares_of_move
from alphazero.games.registry import make_line
from tests.support.paths import REPOSITORY


def squares_named(text: str, height: int, width: int) -> tuple[int, int]:
    """'a5b4': from the bottom left, as in chess; 'a5': of a stone."""
    squares = [
        (height - int(row)) * width + ord(column) - ord("a")
        for column, row in re.findall(r"([a-h])(\d)", text)
    ]
    return (squares[0], squares[1]) if len(squares) == 2 else (-1, squares[0])


def from_the_top(text: str, height: int, width: int) -> tuple[int, int]:
    column, row = re.findall(r"[a-h]|\d", text)
    return -1, (int(row) - 1) * width + ord(column) - ord("a")


def by_row_and_column(text: str, height: int, width: int) -> tuple[int, int]:
    row, column = map(int, re.findall(r"\d+", text))
    return -1, row * width + column


@pytest.mark.parametrize(
    ("game", "named"),
    [
        ("tic_tac_toe", by_row_and_column),
        ("gomoku(size=5)", by_row_and_column),
        ("breakthrough(rows=6,columns=6)", squares_named),
        ("clobber", squares_named),
        ("checkers", squares_named),
        ("go(board_size=5)", squares_named),
        ("othello", from_the_top),
        ("hex(board_size=4)", from_the_top),
    ],
)
def test_each_move_of_openspiel_is_on_the_squares_that_its_name_says(
    game: str, named: Callable[[str, int, int], tuple[int, int]]
) -> None:
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    line, draw, seen = make_line(f"openspiel:{game}"), random.Random(1), 0
    height, width = line.BOARD_HEIGHT, line.BOARD_WIDTH
    while not line.outcome().over and line.num_plies < 20:
        before = cells_of_drawing(line)
        assert before is not None and len(before) == height * width
        for move in line.legal():
            text, after = line.move_to_text(move), line.copy()
            after.push(move)
            cells = cells_of_drawing(after)
            assert cells is not None
            if "pass" in text.lower():
                assert cells == before and squares_of_move(before, cells, width) == (-1, -1)
            else:
                assert squares_of_move(before, cells, width) == named(text, height, width), text
                seen += 1
        line.push(draw.choice(line.legal()))
    assert seen > 20


def test_stones_of_openspiels_connect_four_lie_in_the_columns_that_are_named() -> None:
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (pip install open_spiel)")
    line = make_line("openspiel:connect_four")
    for column, square in ((3, 38), (3, 31), (0, 35), (3, 24)):
        before, text = cells_of_drawing(line), line.move_to_text(column)
        line.push(column)
        after = cells_of_drawing(line)
        assert before is not None and after is not None and text[1:] == str(column)
        assert squares_of_move(before, after, 7) == (-1, square)
        assert after[square] == text[0]


@pytest.mark.parametrize(
    ("before", "after", "squares"),
    [
        ("xx.|...", "..x|...", (0, 2)),  # a jump over what is taken
        ("x..|.o.", "...|.x.", (0, 4)),  # a capture by displacement
        ("...|...", ".x.|...", (-1, 1)),
        ("xo.|...", "xxx|...", (-1, 2)),  # what lies between changes hands
        ("x..|...", "o..|...", (-1, 0)),  # a stone turned over
        ("...|...", "xx.|...", (-1, -1)),  # two stones: a button
        ("xo.|...", "ox.|...", (-1, -1)),
        ("...|...", "...|...", (-1, -1)),  # a pass
    ],
)
def test_a_move_is_on_the_squares_that_it_changes(before: str, after: str, squares: tuple[int, int]) -> None:
    assert squares_of_move(before.replace("|", ""), after.replace("|", ""), 3) == squares


def test_what_is_drawn_otherwise_is_no_board() -> None:
    assert cells_of_drawing(make_line_of("nim.py:Nim(piles=3)")) is None
    assert cells_of_drawing(make_line_of("pegs.py:Pegs")) == "x.xxxxxxxxxxxxxx"


def make_line_of(name: str):
    from alphazero.games.registry import read_game

    return make_line(read_game("game", f"{REPOSITORY / 'examples'}/{name}"))
