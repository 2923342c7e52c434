"""Boards drawn as text: Unicode or ASCII, with colours where a terminal shows them, from either side."""

from __future__ import annotations

from dataclasses import dataclass

from alphazero.games.core_types import Line
from alphazero.games.outside.names import is_outside
from alphazero.games.registry import CHESS

CHESS_LETTERS = "KQRBNPkqrbnp"
_SYMBOLS = {letter: chr(0x2654 + number) for number, letter in enumerate(CHESS_LETTERS)}
_SYMBOLS |= {"x": "\N{BLACK CIRCLE}", "o": "\N{WHITE CIRCLE}", ".": "\N{MIDDLE DOT}"}

# ANSI colours (256 of xterm): squares light and dark, those of the last move, the two sides.
_LIGHT, _DARK, _LAST, _BOARD = "48;5;180", "48;5;137", "48;5;108", "48;5;24"
_CHESS_COLOURS = ("38;5;231", "38;5;16")
_STONE_COLOURS = ("38;5;203", "38;5;221")
_RESET = "\x1b[0m"


@dataclass(frozen=True)
class Style:
    """How boards are drawn. flipped: from the second player's side."""

    unicode: bool = True
    colours: bool = False
    flipped: bool = False


COLUMNS_ARE_MOVES = "connect4"  # named by numbers, and always seen from the front


def can_be_flipped(line: Line) -> bool:
    """False for boards that stand upright, and those that the rules draw."""
    return not is_outside(line.NAME) and line.NAME != COLUMNS_ARE_MOVES


def rows_of(line: Line) -> list[str]:
    """The board from the top, a letter a square and '.' where it is empty."""
    placement = str(line).split()[0]
    return [
        "".join("." * int(sign) if sign.isdigit() else sign for sign in row) for row in placement.split("/")
    ]


def draw(line: Line, style: Style | None = None, last: str = "") -> str:
    """The board at the end of the line. last: the text of the move that led there, which colours show."""
    style = style or Style()
    if is_outside(line.NAME):
        text: str = line.drawing()  # type: ignore[attr-defined]
        return text.rstrip()
    is_chess, has_columns = line.NAME == CHESS, line.NAME == COLUMNS_ARE_MOVES
    rows = rows_of(line)
    height, width = len(rows), len(rows[0])
    changed = _squares_in(last) if style.colours else set()
    order = range(height)
    files = list(range(width))
    if style.flipped and not has_columns:
        order, files = range(height - 1, -1, -1), files[::-1]
    lines = []
    for row in order:
        label = " " if has_columns else str(height - row)
        cells = "".join(
            _cell(
                rows[row][file], is_chess, style, (row + file) % 2 == 1, (file, height - 1 - row) in changed
            )
            for file in files
        )
        lines.append(f"{label} {cells}".rstrip())
    names = [str(file + 1) if has_columns else chr(ord("a") + file) for file in files]
    lines.append("  " + "".join(f" {name} " if style.colours else f"{name} " for name in names).rstrip())
    return "\n".join(lines)


def _cell(sign: str, is_chess: bool, style: Style, is_dark: bool, is_last: bool) -> str:
    symbol = _SYMBOLS.get(sign, sign) if style.unicode else sign
    if not style.colours:
        return f"{symbol} "
    if style.unicode and sign != ".":  # filled: the colour tells whose it is
        symbol = _SYMBOLS[sign.lower() if is_chess else "x"]
    elif sign == "." and is_chess:
        symbol = " "
    ground = _LAST if is_last else (_DARK if is_dark else _LIGHT) if is_chess else _BOARD
    colours = _CHESS_COLOURS if is_chess else _STONE_COLOURS
    colour = "39" if sign == "." else colours[0 if sign.isupper() or sign == "x" else 1]
    return f"\x1b[{ground};{colour}m {symbol} {_RESET}"


def _squares_in(move: str) -> set[tuple[int, int]]:
    """File and rank of the squares that a move's text names: 'e2e4', 'd3'."""
    pairs = [move[start : start + 2] for start in range(0, min(len(move), 4), 2)]
    return {
        (ord(pair[0]) - ord("a"), int(pair[1]) - 1)
        for pair in pairs
        if len(pair) == 2 and pair[0].isalpha() and pair[1].isdigit()
    }
