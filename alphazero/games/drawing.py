"""Boards drawn as text: Unicode or ASCII, with colours where a terminal shows them, from either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alphazero.games.core_types import Line
from alphazero.games.outside.names import is_outside

CHESS_LETTERS = "KQRBNPkqrbnp"
_CHESS_SYMBOLS = dict(zip(CHESS_LETTERS, (chr(0x2654 + number) for number in range(12)), strict=True))
_STONES = {"x": "\N{BLACK CIRCLE}", "o": "\N{WHITE CIRCLE}"}
_MIDDLE_DOT = "\N{MIDDLE DOT}"

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


@dataclass(frozen=True)
class _Look:
    """What is peculiar to a game. columns_are_moves: named by numbers, and always seen from the front."""

    symbols: Mapping[str, str]
    is_chequered: bool = False
    columns_are_moves: bool = False


_LOOKS = {
    "chess": _Look(_CHESS_SYMBOLS, is_chequered=True),
    "connect4": _Look(_STONES, columns_are_moves=True),
}
_OTHER_LOOK = _Look(_STONES)


def can_be_flipped(line: Line) -> bool:
    """False for boards that stand upright, and those that the rules draw."""
    return not is_outside(line.NAME) and not _LOOKS.get(line.NAME, _OTHER_LOOK).columns_are_moves


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
    look = _LOOKS.get(line.NAME, _OTHER_LOOK)
    rows = rows_of(line)
    height, width = len(rows), len(rows[0])
    changed = _squares_in(last, line) if style.colours else set()
    order = range(height)
    files = list(range(width))
    if style.flipped and not look.columns_are_moves:
        order, files = range(height - 1, -1, -1), files[::-1]
    lines = []
    for row in order:
        label = " " if look.columns_are_moves else str(height - row)
        cells = "".join(
            _cell(rows[row][file], look, style, (row + file) % 2 == 1, (file, height - 1 - row) in changed)
            for file in files
        )
        lines.append(f"{label} {cells}".rstrip())
    names = [str(file + 1) if look.columns_are_moves else chr(ord("a") + file) for file in files]
    lines.append("  " + "".join(f" {name} " if style.colours else f"{name} " for name in names).rstrip())
    return "\n".join(lines)


def _cell(sign: str, look: _Look, style: Style, is_dark: bool, is_last: bool) -> str:
    symbol = sign
    if style.unicode:
        symbol = look.symbols.get(sign, _MIDDLE_DOT if sign == "." else sign)
    if not style.colours:
        return f"{symbol} "
    ground = _LAST if is_last else (_DARK if is_dark else _LIGHT) if look.is_chequered else _BOARD
    first = sign.isupper() or sign == "x"
    colours = _CHESS_COLOURS if look.is_chequered else _STONE_COLOURS
    if sign == ".":
        return f"\x1b[{ground}m   {_RESET}" if look.is_chequered else f"\x1b[{ground}m {symbol} {_RESET}"
    if style.unicode and look.is_chequered:
        symbol = look.symbols[sign.lower()]  # the filled one: the colour tells whose it is
    elif style.unicode:
        symbol = _STONES["x"]
    return f"\x1b[{ground};{colours[0 if first else 1]}m {symbol} {_RESET}"


def _squares_in(move: str, line: Line) -> set[tuple[int, int]]:
    """File and rank of the squares that a move's text names: 'e2e4', 'd3'."""
    pairs = [move[start : start + 2] for start in range(0, min(len(move), 4), 2)]
    return {
        (ord(pair[0]) - ord("a"), int(pair[1]) - 1)
        for pair in pairs
        if len(pair) == 2 and pair[0].isalpha() and pair[1].isdigit()
    }
