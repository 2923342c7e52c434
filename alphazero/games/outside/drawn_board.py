"""The board in the drawing of rules outside the core: a sign a square, and the squares that a move changes.

A drawing has a board where as many of its lines as the observation has rows have a sign for each of its
columns, but for spaces, numbers at either end and a line of column letters: OpenSpiel draws its boards so.
"""

from __future__ import annotations

import re
from string import ascii_lowercase

from alphazero.games.core_types import Line

MOST_SIDE = 32  # squares of a side
EMPTY_SIGNS = ".-_+"  # of an empty square: the first of them that a board has
_NUMBERS = re.compile(r"^\d+|\d+$")
_LETTERS = (ascii_lowercase, ascii_lowercase.replace("i", ""))  # of columns; Go has no i


def cells_of_drawing(line: Line) -> str | None:
    """The squares from the top left, '.' where they are empty; None where the drawing has no such board."""
    height, width = line.BOARD_HEIGHT, line.BOARD_WIDTH
    if not 1 < height * width <= MOST_SIDE * max(height, width) <= MOST_SIDE**2:
        return None
    letters = [all_letters[:width] for all_letters in _LETTERS]
    rows = []
    drawing: str = line.drawing()  # type: ignore[attr-defined]
    for text in drawing.splitlines():
        signs = "".join(text.split())
        signs = signs if len(signs) == width else _NUMBERS.sub("", signs)
        if len(signs) == width and signs.lower() not in letters:
            rows.append(signs)
    cells = "".join(rows)
    if len(rows) != height or not cells.isprintable():
        return None
    empty = next((sign for sign in EMPTY_SIGNS if sign in cells), ".")
    if not {"x", "o"} & set(cells):  # stones in capitals
        cells = cells.replace("X", "x").replace("O", "o")
    return cells.replace(empty, ".")


def squares_of_move(before: str, after: str, width: int) -> tuple[int, int]:
    """The squares from which and to which a move leads, by the cells before and after it.

    A sign that left one square for another has moved, from the farthest of several, as over what it takes.
    Else origin -1: an empty square was filled, or one square alone has changed. Target -1: it is neither.
    """
    changed = [at for at, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    filled = [at for at in changed if after[at] != "."]
    left = [at for at in changed if after[at] == "."]
    moved = [(origin, target) for target in filled for origin in left if before[origin] == after[target]]
    if moved:
        return max(moved, key=lambda pair: _distance(pair[0], pair[1], width))
    placed = [at for at in filled if before[at] == "."]
    if len(placed) == 1 or len(changed) == 1:
        return -1, (placed or changed)[0]
    return -1, -1


def _distance(origin: int, target: int, width: int) -> int:
    return max(abs(origin // width - target // width), abs(origin % width - target % width))
