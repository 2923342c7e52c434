"""The games this program knows: a record each, and the sizes and policy layout that follow (GameSpec).

docs/add_a_game.md adds one. The records need no core, which is loaded when first asked for. Games of
OpenSpiel and of Python files (games/outside) have none: all that there is of them follows from their rules.

The maps of lc0's 1858 policy moves to 73 planes, or to attention between squares, follow the order of
lczero-training tf/lc0_az_policy_map.py, of kConvPolicyMap in lc0's src/neural/tables/policy_map.h, and of
kAttnPolicyMap in attention_policy_map.h, from the mover's side: rank 0 is its first rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError, GameInputError
from alphazero.base.text import as_utf8, one_of, quoted
from alphazero.games.core_types import CoreTypes, Line, core_types
from alphazero.games.outside import names, openspiel, use

CHESS = "chess"
# (files, ranks) of one step: N, NE, E, SE, S, SW, W, NW.
_QUEEN_DIRECTIONS = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
_KNIGHT_JUMPS = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))
_PROMOTION_FILES = (-1, 0, 1)  # NW, N, NE
_PROMOTION_PIECES = "rbq"  # a knight promotion is the plain move
_PIECES_OF_ATTENTION = "qrb"

NUM_POLICY_PLANES = 73  # 8 directions x 7 steps, 8 knight jumps, 3 directions x 3 promotions


def policy_maps(moves: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """GameSpec.policy_map and attention_map of policy moves in index order.

    moves: from white's side, such as 'e2e4' or 'a7b8q'.
    """
    vectors = [(files * steps, ranks * steps) for files, ranks in _QUEEN_DIRECTIONS for steps in range(1, 8)]
    planes = {vector: plane for plane, vector in enumerate([*vectors, *_KNIGHT_JUMPS])}
    flat, attention = [], []
    for move in moves:
        from_file, to_file = (ord(letter) - ord("a") for letter in (move[0], move[2]))
        from_rank, to_rank = int(move[1]) - 1, int(move[3]) - 1
        origin = from_rank * 8 + from_file
        if len(move) == 5:
            direction = _PROMOTION_FILES.index(to_file - from_file)
            plane = 64 + direction * len(_PROMOTION_PIECES) + _PROMOTION_PIECES.index(move[4])
            index = 64 * 64 + (from_file * 8 + to_file) * 3 + _PIECES_OF_ATTENTION.index(move[4])
        else:
            plane = planes[to_file - from_file, to_rank - from_rank]
            index = origin * 64 + to_rank * 8 + to_file
        flat.append(plane * 64 + origin)
        attention.append(index)
    return tuple(flat), tuple(attention)


def chess_policy_moves() -> Sequence[str]:
    """The core's policy moves, see policy_maps."""
    import alphazero._core as _core

    return _core.chess_policy_moves()


@dataclass(frozen=True)
class GameSpec:
    """Sizes of a game's encoding.

    A packed position is num_bit_planes little-endian u64 (bit = rank * board_width + file, from the
    mover's side), or num_float_planes planes of f32, followed by num_scalar_planes bytes. The network sees
    so many planes of board_height x board_width; scalar plane i is filled with byte * scalar_scale[i].
    What is no board is one square with a plane for each number.

    policy_planes / policy_map: the convolutional policy head makes policy_planes planes; entry a of
    policy_map (length policy_size) is the flat index plane * height * width + square that holds
    policy index a. policy_planes 0: moves are no planes of squares, and a linear layer gives their logits.
    attention_map: where the attention policy head has it (AttentionPolicyHead), with Q squares on a board W
    wide: from * Q + to, or Q * Q + (from file * W + to file) * 3 + piece for promotions to queen, rook and
    bishop; empty for games whose moves are none from a square to a square.
    num_symmetries: ways to turn the board that change nothing of the game, 1 for none. Those of rules outside
    the core are not counted: they are looked for where samples are turned (outside/symmetry.py).
    """

    name: str
    board_height: int
    board_width: int
    num_bit_planes: int
    num_scalar_planes: int
    scalar_scale: tuple[float, ...]
    policy_size: int
    policy_planes: int
    policy_map: tuple[int, ...]
    attention_map: tuple[int, ...]
    max_legal_moves: int
    num_symmetries: int
    num_float_planes: int = 0

    @property
    def num_planes(self) -> int:
        """Input planes of the network."""
        return self.num_bit_planes + self.num_float_planes + self.num_scalar_planes

    @property
    def num_squares(self) -> int:
        """Of the board; 1 where there is none."""
        return self.board_height * self.board_width

    @property
    def packed_bytes(self) -> int:
        """Bytes of one packed position."""
        return 8 * self.num_bit_planes + 4 * self.num_float_planes * self.num_squares + self.num_scalar_planes


if TYPE_CHECKING:
    import alphazero._core as _core
    from alphazero.games.outside.rules import State


@dataclass(frozen=True)
class Game:
    """What the program must know of a game beyond the core's rules.

    name: as in settings, stores and weights files, and the core's kName.
    scalar_scale: by which the network multiplies each scalar plane; empty: 1 for all.
    policy_planes: see GameSpec. policy_moves: those from a square to a square, in index order, from which its
    policy_map and attention_map follow; without them policy index a is the flat index a of the planes.
    has_embedded_games: games to learn from ship with the program.
    has_solved_positions: so do positions with exact values (measure/truth/connect4.py).
    measured_by: the command that says how good a network is; {games} are some to predict.
    """

    name: str
    scalar_scale: tuple[float, ...] = ()
    policy_planes: int = 1
    policy_moves: Callable[[], Sequence[str]] | None = None
    has_embedded_games: bool = False
    has_solved_positions: bool = False
    measured_by: str = "match {network} --against mcts"

    @property
    def core(self) -> CoreTypes:
        """The core's classes for this game."""
        if names.is_outside(self.name):
            use.use_rules(self.name)
        return core_types(self.name)


_GAMES = (
    Game(
        name=CHESS,
        # The halfmove clock enters as count / 99, as lczero-training has it; every
        # other scalar plane is 0 or 1.
        scalar_scale=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0 / 99.0, 1.0, 1.0),
        policy_planes=NUM_POLICY_PLANES,
        policy_moves=chess_policy_moves,
        has_embedded_games=True,
        measured_by="eval {network} --data {games}",
    ),
    # A column is its bottom square.
    Game(
        name="connect4",
        has_solved_positions=True,
        measured_by="eval {network} --solved --simulations 600",
    ),
    Game(name="tictactoe"),
    # The pass, policy index 64, is the first square of a second plane.
    Game(name="othello", policy_planes=2),
)
START = "startpos"  # as UCI calls the start of the game
_BY_NAME = {game.name: game for game in _GAMES}


def game_names() -> tuple[str, ...]:
    """All games, chess first."""
    return tuple(_BY_NAME)


def get_game(name: str) -> Game:
    """The record of the game `name`. Raises ConfigError for an unknown one."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if names.is_outside(name):
        return Game(name=name)
    raise ConfigError(f"game {quoted(name)}: expected one of {', '.join(_BY_NAME)}, {names.FORMS}")


def read_game(source: str, text: str) -> str:
    """The name of a game as a flag or a settings file gives it: that of a Python file is the one recorded.

    The file counts as named by the user from now on. Raises ConfigError.
    """
    if text in _BY_NAME:
        return text
    if not names.is_outside(text):
        raise ConfigError(f"{source}: {quoted(text)}: {one_of(text, _BY_NAME)}, {names.FORMS}")
    asked = names.class_of(text)
    if asked is None:
        return openspiel.recorded(text)
    return known_game(text) if asked.digest else names.name_class(asked)


def known_game(name: str) -> str:
    """The name of a game that a run, store or weights file holds, by the rules of now.

    Raises ConfigError for the name of no game, and for a class in a Python file that the user did not name.
    """
    now = names.version_now(get_game(name).name)
    if names.class_of(now) is not None:
        names.named_class(now)
    return now


def history_fill(name: str) -> _core.HistoryFill:
    """The core's value for a history_fill setting: 'no' or 'fen_only'."""
    import alphazero._core as _core

    if name not in ("no", "fen_only"):
        raise ConfigError(f"history fill {name!r}: expected one of no, fen_only")
    return _core.HistoryFill.NO if name == "no" else _core.HistoryFill.FEN_ONLY


def make_line(name: str, start: str | None = None) -> Line:
    """A line of play of the game `name`.

    start: a position as text (chess: FEN; the others: rows from the top as in a FEN, x moves first);
    None and 'startpos' are the start of the game. Raises ConfigError for the name, GameInputError for the
    text.
    """
    import alphazero._core as _core

    line_type = get_game(name).core.line
    try:
        return line_type(None if start in (None, START) else as_utf8(start))
    except _core.GameError as error:
        raise GameInputError(str(error)) from error


def line_of_state(name: str, state: State) -> Line:
    """A line that begins at a copy of a state of the rules, whose moves before are not known.

    Its texts begin with 'state' and cannot be read. Raises ConfigError for the name, RulesError for what is
    no state of this game.
    """
    import alphazero._core as _core

    get_game(name).core  # noqa: B018 - which has the core use these rules
    line: Line = _core.line_of_state(state)  # type: ignore[assignment]
    return line


@cache
def get_spec(name: str) -> GameSpec:
    """Sizes and policy layout of the game `name`; raises ConfigError for an unknown one."""
    game = get_game(name)
    line_type = game.core.line
    planes, places = game.policy_planes, tuple(range(line_type.POLICY_SIZE))
    attention: tuple[int, ...] = ()
    if game.policy_moves:
        places, attention = policy_maps(game.policy_moves())
    elif names.is_outside(name):
        rules = use.rules_of(name)
        planes, places = rules.policy_planes, rules.policy_map
    return GameSpec(
        name=name,
        board_height=line_type.BOARD_HEIGHT,
        board_width=line_type.BOARD_WIDTH,
        num_bit_planes=line_type.NUM_BIT_PLANES,
        num_scalar_planes=line_type.NUM_SCALAR_PLANES,
        scalar_scale=game.scalar_scale or (1.0,) * line_type.NUM_SCALAR_PLANES,
        policy_size=line_type.POLICY_SIZE,
        policy_planes=planes,
        policy_map=places,
        attention_map=attention,
        max_legal_moves=line_type.MAX_LEGAL_MOVES,
        num_symmetries=1 if names.is_outside(name) else line_type.NUM_SYMMETRIES,
        num_float_planes=line_type.NUM_FLOAT_PLANES,
    )
