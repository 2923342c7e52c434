"""The games this program knows: a record each, and what follows from it and from the core.

docs/add_a_game.md adds one. The records need no core; it is loaded when first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from alphazero.errors import ConfigError, GameInputError
from alphazero.games.chess_policy import NUM_POLICY_PLANES, chess_attention_map, chess_policy_map
from alphazero.games.core_types import CoreTypes, Line, core_types
from alphazero.games.spec import GameSpec
from alphazero.text import as_utf8, quoted

if TYPE_CHECKING:
    from alphazero import _core


@dataclass(frozen=True)
class Game:
    """What the program must know of a game beyond the core's rules.

    name: as in settings, stores and weights files, and the core's kName.
    scalar_scale: by which the network multiplies each scalar plane; empty: 1 for all.
    policy_planes, policy_map, attention_map: see GameSpec. No policy_map: policy index a is the flat index a
    of the planes.
    usual_moves: legal moves of a usual position, for measurements.
    has_embedded_games: games to learn from ship with the program.
    has_solved_positions: so do positions with exact values (evaluation/solved.py).
    eval_flags: what `alphazero eval` is told after training, beside the weights.
    """

    name: str
    usual_moves: int
    scalar_scale: tuple[float, ...] = ()
    policy_planes: int = 1
    policy_map: Callable[[], tuple[int, ...]] | None = None
    attention_map: Callable[[], tuple[int, ...]] | None = None
    has_embedded_games: bool = False
    has_solved_positions: bool = False
    eval_flags: str = "--data STORE"

    @property
    def core(self) -> CoreTypes:
        """The core's classes for this game."""
        return core_types(self.name)


_GAMES = (
    Game(
        name="chess",
        usual_moves=32,
        # The halfmove clock enters as count / 99, as lczero-training has it (DESIGN 6: the V6 record); every
        # other scalar plane is 0 or 1.
        scalar_scale=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0 / 99.0, 1.0, 1.0),
        policy_planes=NUM_POLICY_PLANES,
        policy_map=chess_policy_map,
        attention_map=chess_attention_map,
        has_embedded_games=True,
        eval_flags="--data examples/games.pgn.gz",
    ),
    # A column is its bottom square.
    Game(
        name="connect4",
        usual_moves=7,
        has_solved_positions=True,
        eval_flags="--solved --simulations 600",
    ),
    Game(name="tictactoe", usual_moves=5),
    # The pass, policy index 64, is the first square of a second plane.
    Game(name="othello", usual_moves=9, policy_planes=2),
)
_BY_NAME = {game.name: game for game in _GAMES}


def game_names() -> tuple[str, ...]:
    """All games, chess first."""
    return tuple(_BY_NAME)


def get_game(name: str) -> Game:
    """The record of the game `name`. Raises ConfigError for an unknown one."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ConfigError(f"game {quoted(name)}: expected one of {', '.join(_BY_NAME)}") from None


def history_fill(name: str) -> _core.HistoryFill:
    """The core's value for a history_fill setting: 'no' or 'fen_only'."""
    from alphazero import _core

    fills = {"no": _core.HistoryFill.NO, "fen_only": _core.HistoryFill.FEN_ONLY}
    try:
        return fills[name]
    except KeyError:
        raise ConfigError(f"history fill {name!r}: expected one of {', '.join(fills)}") from None


def make_line(name: str, start: str | None = None) -> Line:
    """A line of play of the game `name`.

    start: a position as text (chess: FEN; the others: rows from the top as in a FEN, x moves first);
    None is the start of the game. Raises ConfigError for the name, GameInputError for the text.
    """
    from alphazero import _core

    line_type = get_game(name).core.line
    try:
        return line_type(None if start is None else as_utf8(start))
    except _core.GameError as error:
        raise GameInputError(str(error)) from error


@cache
def get_spec(name: str) -> GameSpec:
    """Sizes and policy layout of the game `name`; raises ConfigError for an unknown one."""
    game = get_game(name)
    line_type = game.core.line
    return GameSpec(
        name=name,
        board_height=line_type.BOARD_HEIGHT,
        board_width=line_type.BOARD_WIDTH,
        num_bit_planes=line_type.NUM_BIT_PLANES,
        num_scalar_planes=line_type.NUM_SCALAR_PLANES,
        scalar_scale=game.scalar_scale or (1.0,) * line_type.NUM_SCALAR_PLANES,
        policy_size=line_type.POLICY_SIZE,
        policy_planes=game.policy_planes,
        policy_map=game.policy_map() if game.policy_map else tuple(range(line_type.POLICY_SIZE)),
        attention_map=game.attention_map() if game.attention_map else (),
        max_legal_moves=line_type.MAX_LEGAL_MOVES,
        num_symmetries=line_type.NUM_SYMMETRIES,
    )
