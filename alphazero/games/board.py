"""A board of any game: the moves played, the legal ones, how the game stands."""

from __future__ import annotations

from collections.abc import Iterable

from alphazero.base.errors import GameInputError
from alphazero.games.core_types import Line
from alphazero.games.drawing import Style, draw
from alphazero.games.notation import move_text, read_move
from alphazero.games.registry import make_line


class Board:
    """A position of a game and the moves that led to it.

        board = az.Board("chess", moves=["e4", "e5", "Nf3"])
        board.legal_moves[:2], board.turn, board.result

    Moves are texts: SAN or UCI in chess, a column in Connect Four, a square such as d3 (or pass) in Othello
    and tic-tac-toe. The first player is White in chess and x elsewhere.
    """

    def __init__(self, game: str = "chess", start: str | None = None, moves: Iterable[str] = ()) -> None:
        """start: a position as text (chess: FEN; the others: rows from the top, x moves first).

        Raises ConfigError for the game, GameInputError for the position and the moves.
        """
        self._line = make_line(game, start)
        self._moves: list[int] = []
        self._start = start
        for move in moves:
            self.push(move)

    @property
    def game(self) -> str:
        """'chess', 'connect4', 'tictactoe' or 'othello'."""
        return self._line.NAME

    @property
    def line(self) -> Line:
        """The core's line of play; a copy, for what the core offers beyond this class."""
        return self._line.copy()

    @property
    def start(self) -> str | None:
        """The position that the board began with; None is the start of the game."""
        return self._start

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
        line = make_line(self.game, self._start)
        texts = []
        for move in self._moves:
            texts.append(line.move_to_text(move))
            line.push(move)
        return texts

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
        return {1: "1-0", 0: "1/2-1/2", -1: "0-1"}[value]

    @property
    def termination(self) -> str:
        """Why the game is over: 'win', 'stalemate', 'repetition', ...; '' before the end."""
        outcome = self._line.outcome()
        return outcome.termination.name.lower() if outcome.over else ""

    def push(self, move: str) -> None:
        """Play a move. Raises GameInputError for one that is not legal, with the nearest one that is."""
        if self.is_over:
            raise GameInputError(f"{move!r}: the game is over, {self.result}")
        found = read_move(self._line, move)
        self._line.push(found)
        self._moves.append(found)

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
        """A board of its own with the same moves."""
        other = Board(self.game, self._start)
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
