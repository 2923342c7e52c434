"""A board of any game: the moves played, the legal ones, how the game stands."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from alphazero.base.errors import GameInputError
from alphazero.games.core_types import Line
from alphazero.games.drawing import Style, draw
from alphazero.games.notation import (
    RESULTS,
    from_python_chess,
    history_of,
    legal_move,
    move_text,
    own_texts,
    read_move,
)
from alphazero.games.outside.names import is_outside
from alphazero.games.outside.use import rules_of
from alphazero.games.registry import CHESS, START, line_of_state, make_line, read_game

if TYPE_CHECKING:
    import chess

    from alphazero.games.outside.rules import State


class Board:
    """A position of a game and the moves that led to it.

        board = az.Board("chess", moves=["e4", "e5", "Nf3"])
        board.legal_moves[:2], board.turn, board.result

    Moves are texts: SAN or UCI in chess, a column in Connect Four, a square such as d3 (or pass) in Othello
    and tic-tac-toe; in chess also moves of python-chess, and the numbers of actions in games of OpenSpiel and
    Python files. The first player is White in chess and x elsewhere.
    """

    def __init__(
        self,
        game: str = "chess",
        start: str | chess.Board | State | None = None,
        moves: Iterable[str | int | chess.Move] = (),
    ) -> None:
        """start: a position as text (chess: FEN; the others: rows from the top, x moves first).

        Or a board of python-chess, with the moves on its stack, or a state of OpenSpiel or of a Python file:
        with history(), the actions so far, the game up to it, else a board that begins there. Raises
        ConfigError for the game, GameInputError and RulesError for the position and the moves.
        """
        name = read_game("game", game)
        before: Sequence[str | int] | None = ()
        shown = ""  # of a state: where its history must lead
        root = None
        if start is not None and not isinstance(start, str):
            if is_outside(name):
                shown = "" if type(start).__str__ is object.__str__ else str(start).rstrip()
                before = history_of(start)
                root = line_of_state(name, cast("State", start)) if before is None else None
                start = None if root is None else str(root)
            elif game == CHESS:
                start, before = from_python_chess(start)
            else:
                raise GameInputError(f"a position of type {type(start).__name__}: expected one of {game}")
        self._root = root or make_line(name, start)
        self._line = self._root.copy()
        self._moves: list[int] = []
        self._start = None if start == START else start
        for number, made in enumerate(before or (), start=1):
            try:
                self.push(made)
            except GameInputError as error:
                raise GameInputError(f"move {number}: {error}") from None
        if shown and shown != str(self):
            raise GameInputError("a state whose history() does not lead to it")
        for move in moves:
            self.push(move)

    @property
    def game(self) -> str:
        """'chess', 'connect4', 'tictactoe', 'othello', or the recorded name of another game."""
        return self._line.NAME

    @property
    def line(self) -> Line:
        """The core's line of play; a copy, for what the core offers beyond this class."""
        return self._line.copy()

    @property
    def start(self) -> str | None:
        """The position that the board began with: None for the start of the game, 'state' for a state."""
        return self._start

    @property
    def state(self) -> State:
        """A copy of the rules' own state here. Raises GameInputError in games other than those outside."""
        import alphazero._core as _core

        if not isinstance(self._line, _core.ForeignLine):
            raise GameInputError(f"state: {self.game} has none; expected a game of OpenSpiel or Python")
        rules = rules_of(self.game)
        with rules.explain.faults():
            return rules.copy(_core.state_of_line(self._line))

    @property
    def fen(self) -> str:
        """The position as text: FEN in chess, the rows from the top in the other games."""
        return str(self._line)

    @property
    def turn(self) -> str:
        """Who moves: 'first' (White, x) or 'second'."""
        return "first" if self._line.first_player_to_move else "second"

    @property
    def moves(self) -> list[str]:
        """The moves played on this board, in the game's own texts (chess: UCI)."""
        return own_texts(self._root, self._moves)

    @property
    def legal_moves(self) -> list[str]:
        """The legal moves in the game's own texts (chess: UCI); none where the game is over."""
        if self.is_over:
            return []
        return [self._line.move_to_text(move) for move in self._line.legal()]

    @property
    def is_over(self) -> bool:
        """Whether the rules have ended the game."""
        return self._line.outcome().over

    @property
    def result(self) -> str | None:
        """'1-0', '0-1' or '1/2-1/2', None before the end."""
        outcome = self._line.outcome()
        if not outcome.over:
            return None
        value = outcome.value if self._line.first_player_to_move else -outcome.value
        return RESULTS[value]

    @property
    def termination(self) -> str:
        """Why the game is over: 'win', 'stalemate', 'repetition', ...; '' before the end."""
        outcome = self._line.outcome()
        return outcome.termination.name.lower() if outcome.over else ""

    def push(self, move: str | int | chess.Move) -> None:
        """Play a move, also after a draw by repetition or fifty moves, which players need not claim.

        Raises GameInputError for a move that is not legal, with the nearest one that is.
        """
        number = legal_move(self._line, move)
        self._line.push(number)
        self._moves.append(number)

    def pop(self) -> str:
        """Take the last move back; its text. Raises GameInputError where there is none."""
        if not self._moves:
            raise GameInputError("no move to take back: this is where the board began")
        self._line.pop()
        return self._line.move_to_text(self._moves.pop())

    def san(self, move: str) -> str:
        """A legal move as people write it: SAN in chess, else the game's own text."""
        return move_text(self._line, read_move(self._line, move))

    def copy(self) -> Board:
        """A separate board with the same moves."""
        other = copy.copy(self)
        other._line = self._line.copy()
        other._moves = list(self._moves)
        return other

    def draw(self, style: Style | None = None) -> str:
        """The board as text of several lines."""
        moves = self.moves
        return draw(self._line, style, moves[-1] if moves else "")

    def __str__(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        return f"Board({self.game!r}, {self.fen!r})"
