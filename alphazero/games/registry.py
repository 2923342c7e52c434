"""The games this program knows, by name: their GameSpec and their lines of play."""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

from alphazero import _core
from alphazero.errors import ConfigError, GameInputError
from alphazero.games.chess_policy import NUM_POLICY_PLANES, policy_map
from alphazero.games.spec import GameSpec

Line: TypeAlias = _core.ChessLine | _core.Connect4Line | _core.TicTacToeLine
LineType: TypeAlias = type[_core.ChessLine] | type[_core.Connect4Line] | type[_core.TicTacToeLine]

_LINE_TYPES: dict[str, LineType] = {
    line_type.NAME: line_type for line_type in (_core.ChessLine, _core.Connect4Line, _core.TicTacToeLine)
}
_HISTORY_FILLS = {"no": _core.HistoryFill.NO, "fen_only": _core.HistoryFill.FEN_ONLY}

# The halfmove clock enters as count / 99, as lczero-training has it (DESIGN 6: the V6 record); every
# other scalar plane is 0 or 1.
_CHESS_SCALAR_SCALE = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0 / 99.0, 1.0, 1.0)


def game_names() -> tuple[str, ...]:
    """All games, chess first."""
    return tuple(_LINE_TYPES)


def _line_type(name: str) -> LineType:
    try:
        return _LINE_TYPES[name]
    except KeyError:
        raise ConfigError(f"game {name!r}: expected one of {', '.join(_LINE_TYPES)}") from None


def history_fill(name: str) -> _core.HistoryFill:
    """The core's value for a history_fill setting: 'no' or 'fen_only'."""
    try:
        return _HISTORY_FILLS[name]
    except KeyError:
        raise ConfigError(f"history fill {name!r}: expected one of {', '.join(_HISTORY_FILLS)}") from None


def make_line(name: str, start: str | None = None) -> Line:
    """A line of play of the game `name`.

    start: a position as text (chess: FEN; the others: rows from the top as in a FEN, x moves first);
    None is the start of the game. Raises ConfigError for the name, GameInputError for the text.
    """
    line_type = _line_type(name)
    try:
        return line_type(start)
    except _core.GameError as error:
        raise GameInputError(str(error)) from error


@cache
def get_spec(name: str) -> GameSpec:
    """Sizes and policy layout of the game `name`; raises ConfigError for an unknown one.

    The small games have one policy plane: Connect Four's column c is its bottom square c, tic-tac-toe's
    policy is its board.
    """
    line_type = _line_type(name)
    is_chess = line_type is _core.ChessLine
    return GameSpec(
        name=name,
        board_height=line_type.BOARD_HEIGHT,
        board_width=line_type.BOARD_WIDTH,
        num_bit_planes=line_type.NUM_BIT_PLANES,
        num_scalar_planes=line_type.NUM_SCALAR_PLANES,
        scalar_scale=_CHESS_SCALAR_SCALE if is_chess else (1.0,) * line_type.NUM_SCALAR_PLANES,
        policy_size=line_type.POLICY_SIZE,
        policy_planes=NUM_POLICY_PLANES if is_chess else 1,
        policy_map=policy_map(_core.chess_policy_moves())
        if is_chess
        else tuple(range(line_type.POLICY_SIZE)),
        max_legal_moves=line_type.MAX_LEGAL_MOVES,
        num_symmetries=line_type.NUM_SYMMETRIES,
    )
