"""Games of a person against a network in the terminal, and their PGN."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import AlphaZeroError, GameInputError, RulesError
from alphazero.base.text import counted, near_match, quoted, table
from alphazero.games.board import Board
from alphazero.games.drawing import Style, can_be_flipped
from alphazero.games.notation import move_text, move_texts, read_move
from alphazero.games.outside.names import is_outside
from alphazero.games.registry import CHESS
from alphazero.play.search_text import LONGEST_PV, value_text
from alphazero.search.tree_search import SearchLimits

if TYPE_CHECKING:
    from alphazero.play.net import Net

SIDES = {"first": "first", "white": "first", "second": "second", "black": "second", "random": "random"}
COMMANDS = {
    "undo": "take back your last move and the answer to it",
    "moves": "the moves so far, and the legal ones",
    "new [SIDE]": f"start another game; SIDE: {', '.join(SIDES)}",
    "help": "this list",
    "quit": "quit, as Ctrl-D and Ctrl-C do",
}
_WORDS = [text.split()[0] for text in COMMANDS]


def require_chess(game: str, where: str) -> None:
    """Raise GameInputError for a game other than chess."""
    if game != CHESS:
        raise GameInputError(f"{where}: PGN is for chess; this is {game}")


def pgn_of(played: Board, players: Sequence[str], resigned: str = "") -> str:
    """The game as PGN, with an empty line at the end. players: White's name and Black's.

    resigned: the result where a player has resigned.
    """
    from alphazero.play.pgn.writing import pgn_text

    headers = {
        "Event": "alphazero play",
        "Date": time.strftime("%Y.%m.%d"),
        "White": players[0],
        "Black": players[1],
        "Result": resigned or played.result or "*",
        "Termination": "normal" if resigned or played.result else "unterminated",
    }
    return pgn_text(played.start, played.moves, headers, reason="resignation" if resigned else "")


@dataclass
class PlaySession:
    """Games of a person against a network. read: prompts for a line, None at the end of the input.

    write: prints text. side: the person's: first, second or random. limits: of a search. start: a position as
    text, or None. moves: played from there. pgn: where games are written when they end, or None.
    """

    net: Net
    style: Style
    read: Callable[[str], str | None]
    write: Callable[[str], None]
    side: str
    limits: SearchLimits
    start: str | None = None
    moves: tuple[str, ...] = ()
    pgn: Path | None = None

    def __post_init__(self) -> None:
        self._quits = False
        self._kept: list[str] = []  # moves of the game that was last saved
        self._tree = self.net.tree()
        self._begin(self.side)

    def run(self) -> None:
        """Play until the input ends or the person quits; saves the games to `pgn`."""
        try:
            self._show()
            while not self._quits:
                if self._board.is_over or self._board.turn == self._person:
                    self._obey()
                else:
                    self._answer()
        finally:
            self._tree.close()
            self._keep()

    def _begin(self, side: str) -> None:
        self._person = random.choice(("first", "second")) if side == "random" else side
        self._board = Board(self.net.game, self.start, self.moves)
        self._tree.forget()
        flipped = self._person == "second" and can_be_flipped(self._board.line)
        self.style = replace(self.style, flipped=flipped)

    def _show(self) -> None:
        self.write("")
        self.write(self._board.draw(self.style))
        if self._board.is_over:
            self.write(f"{self._result()}; new, undo or quit")

    def _result(self) -> str:
        return f"the game is over: {self._board.result} ({self._board.termination.replace('_', ' ')})"

    def _answer(self) -> None:
        """Play the network's move."""
        from alphazero.play.net import search_line

        line = self._board.line
        snapshot = search_line(self._tree, line, self.limits, 1)
        assert snapshot.best is not None
        best = snapshot.best
        plan = " ".join(move_texts(line, best.pv[:LONGEST_PV]))
        value, effort = value_text(best.q, best.mate), counted(snapshot.nodes, "visit")
        text = f"{move_text(line, best.move)}  ({value} for it, {effort}"
        self._push(best.move)
        self._show()
        self.write(f"the network plays {text}: {plan})")
        if self._board.is_over:
            self._keep()

    def _push(self, move: int) -> None:
        """By number in games of others, where several moves may have one name."""
        line = self._board.line
        self._board.push(move if is_outside(line.NAME) else line.move_to_text(move))

    def _obey(self) -> None:
        """Read and handle a line."""
        first, second = ("white", "black") if self._board.game == CHESS else ("x", "o")
        side = first if self._board.turn == "first" else second
        typed = self.read("game over> " if self._board.is_over else f"{side}> ")
        if typed is None:
            self.write("")
        words = ["quit"] if typed is None else typed.split()
        if not words:
            return
        try:
            if words[0].lower() not in _WORDS:
                self._move(" ".join(words))
            elif len(words) > 1 and words[0].lower() != "new":
                raise GameInputError(f"{quoted(' '.join(words))}: expected {words[0]} alone")
            else:
                command: Callable[..., None] = getattr(self, f"_do_{words[0].lower()}")
                command(*words[1:2])
        except RulesError:
            raise
        except AlphaZeroError as error:
            self.write(str(error))

    def _move(self, typed: str) -> None:
        near = near_match(typed.lower(), _WORDS)
        try:
            if self._board.is_over:
                raise GameInputError(f"{quoted(typed)}: {self._result()}; expected new, undo or quit")
            move = read_move(self._board.line, typed)
        except GameInputError as error:
            raise GameInputError(f"{quoted(typed)}: did you mean {near}?" if near else str(error)) from None
        self._push(move)
        if self._board.is_over:
            self._show()
            self._keep()

    def _do_help(self) -> None:
        is_chess = self._board.game == CHESS
        how = "SAN or UCI (Nf3, g1f3, O-O, e8=Q)" if is_chess else "as `moves` lists it"
        for row in table([("a move", how), *COMMANDS.items()]):
            self.write(f"  {row}")

    def _do_quit(self) -> None:
        self._quits = True

    def _do_undo(self) -> None:
        """Return to the person's previous turn."""
        before = self._board.copy()
        try:
            self._board.pop()
            while self._board.turn != self._person:
                self._board.pop()
        except GameInputError:
            self._board = before
            raise GameInputError("undo: no move of yours to take back") from None
        self._show()

    def _do_moves(self) -> None:
        line = self._board.line
        played = Board(self._board.game, self._board.start)
        texts = []
        for move in self._board.moves:
            texts.append(played.san(move))
            played.push(move)
        self.write(f"played: {' '.join(texts) or 'none'}")
        legal = [] if self._board.is_over else [move_text(line, move) for move in line.legal()]
        self.write(f"legal: {' '.join(legal) or 'none'}")

    def _do_new(self, side: str = "") -> None:
        if side and side.lower() not in SIDES:
            raise GameInputError(f"new {quoted(side)}: expected {', '.join(SIDES)}")
        self._keep()
        self._begin(SIDES[side.lower()] if side else self._person)
        self._show()

    def _keep(self) -> None:
        """Add the game to the file of --pgn, once. Raises GameInputError where it cannot be written."""
        path, board = self.pgn, self._board
        if path is None or not board.moves or board.moves == self._kept:
            return
        self._kept = board.moves
        players = ("human", f"alphazero {Path(self.net.source).name}")
        text = pgn_of(board, players if self._person == "first" else players[::-1])
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise GameInputError(f"--pgn {path}: cannot be written: {error.strerror}") from error
        self.write(f"added to {path}")
