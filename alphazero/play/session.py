"""Games of a person against a network in the terminal, and their PGN."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphazero.base.errors import AlphaZeroError, GameInputError, RulesError
from alphazero.base.text import counted, near_match, quoted, table
from alphazero.games.board import Board
from alphazero.games.drawing import Style, can_be_flipped
from alphazero.games.notation import move_text, move_texts, read_move
from alphazero.games.registry import CHESS
from alphazero.play.net import Net, search_line
from alphazero.play.search_text import LONGEST_PV, chances_text, lines_text, value_text
from alphazero.search.snapshot import Snapshot
from alphazero.search.tree_search import SearchLimits


def require_chess(game: str, place: str) -> None:
    """Raise GameInputError for a game other than chess."""
    if game != CHESS:
        raise GameInputError(f"{place}: PGN is for chess; this is {game}")


def pgn_of(played: Board, players: Sequence[str], resigned: str = "") -> str:
    """The game as PGN, with a blank line after it. players: White's name and Black's.

    resigned: the result where a player has resigned.
    """
    import chess
    import chess.pgn

    board = chess.Board(played.start or chess.STARTING_FEN, chess960=True)
    board.chess960 = board.has_chess960_castling_rights()
    record = chess.pgn.Game()
    record.setup(board)
    headers = {
        "Event": "alphazero play",
        "Date": time.strftime("%Y.%m.%d"),
        "White": players[0],
        "Black": players[1],
        "Result": resigned or played.result or "*",
        "Termination": "resignation" if resigned else played.termination.replace("_", " "),
    }
    for name, value in headers.items():
        if value:
            record.headers[name] = value
    node: chess.pgn.GameNode = record
    for text in played.moves:
        node = node.add_variation(node.board().parse_uci(text))
    return f"{record}\n\n"


HINT_LINES = 3
SIDES = ("first", "second", "random")
# Names of the sides in chess and in other games.
SIDE_WORDS = {"white": "first", "black": "second", "x": "first", "o": "second"}
COMMANDS = {
    "hint": "what the network would play, with its best lines",
    "undo": "take back your last move and the answer to it, as back does",
    "flip": "show the board from the other side",
    "board": "show the board again",
    "fen [POSITION]": "the position as text; with POSITION, play from there",
    "moves": "the moves so far, and the legal ones",
    "resign": "resign the game",
    "new [SIDE]": "start another game; SIDE: first (white, x), second (black, o) or random",
    "pgn FILE": "add the game to a PGN file (chess)",
    "help": "this list",
    "quit": "quit, as Ctrl-D and Ctrl-C do",
}
_WORDS = {text.split()[0]: text for text in COMMANDS}
_ALIASES = {"back": "undo", "exit": "quit"}


@dataclass
class PlaySession:
    """Games of a person against a network. read: prompts for a line, None at the end of the input.

    write: prints text. side: the person's: first, second or random. limits: of a search. start: a position as
    text, or None. moves: played from there. pgn: where games are written when they end, or None. seed: of a
    random side.
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
    seed: int | None = None

    def __post_init__(self) -> None:
        self._quits = False
        self._kept: list[str] = []  # moves of the game that was last saved
        self._random = random.Random(self.seed)
        self._tree = self.net.tree()
        self._begin(self.side)

    def run(self) -> None:
        """Play until the input ends or the person quits; saves the game to `pgn`."""
        try:
            self._show()
            while not self._quits:
                if self._is_over or self._board.turn == self._person:
                    self._obey()
                else:
                    self._answer()
        finally:
            self._tree.close()
            self._keep()

    @property
    def _is_over(self) -> bool:
        return bool(self._resigned) or self._board.is_over

    def _begin(self, side: str) -> None:
        self._person = self._random.choice(SIDES[:2]) if side == "random" else side
        self._board = Board(self.net.game, self.start, self.moves)
        self._resigned = ""
        self._tree.forget()
        flipped = self._person == "second" and can_be_flipped(self._board.line)
        self.style = replace(self.style, flipped=flipped)

    def _show(self) -> None:
        self.write("")
        self.write(self._board.draw(self.style))
        if self._is_over:
            self.write(f"{self._result()}; new, undo, pgn FILE or quit")

    def _result(self) -> str:
        result = self._resigned or self._board.result
        why = "resigned" if self._resigned else self._board.termination.replace("_", " ")
        return f"the game is over: {result} ({why})"

    def _answer(self) -> None:
        """Play the network's move."""
        line = self._board.line
        found = self._search()
        assert found.best is not None
        best = found.best
        plan = " ".join(move_texts(line, best.pv[:LONGEST_PV]))
        value, effort = value_text(best.q, best.mate), counted(found.nodes, "visit")
        text = f"{move_text(line, best.move)}  ({value} for it, {effort}"
        self._board.push(best.text)
        self._show()
        self.write(f"the network plays {text}: {plan})")
        if self._board.is_over:
            self._keep()

    def _search(self) -> Snapshot:
        return search_line(self._tree, self._board.line, self.limits, HINT_LINES)

    def _obey(self) -> None:
        """Read and handle a line."""
        first, second = ("white", "black") if self._board.game == CHESS else ("x", "o")
        side = first if self._board.turn == "first" else second
        typed = self.read("game over> " if self._is_over else f"{side}> ")
        if typed is None:
            self.write("")
        word, _, rest = ("quit" if typed is None else typed.strip()).partition(" ")
        if not word:
            return
        try:
            self._do(word.lower(), rest.strip(), f"{word} {rest}".strip())
        except RulesError:
            raise
        except AlphaZeroError as error:
            self.write(str(error))

    def _do(self, word: str, rest: str, typed: str) -> None:
        if word not in _WORDS and word not in _ALIASES:
            self._move(typed)
            return
        word = _ALIASES.get(word, word)
        command: Callable[..., None] = getattr(self, f"_do_{word}")
        if _WORDS[word] != word:  # it takes something
            command(rest)
        elif rest:
            raise GameInputError(f"{quoted(typed)}: expected {word} alone")
        else:
            command()

    def _do_board(self) -> None:
        self._show()

    def _do_pgn(self, name: str) -> None:
        if not name:
            raise GameInputError("pgn: expected the name of a file, as pgn game.pgn")
        self._add_to(Path(name).expanduser())

    def _do_help(self) -> None:
        is_chess = self._board.game == CHESS
        how = "SAN or UCI (Nf3, g1f3, O-O, e8=Q)" if is_chess else "as `moves` lists it"
        for row in table([("a move", how), *COMMANDS.items()]):
            self.write(f"  {row}")

    def _do_quit(self) -> None:
        self._quits = True

    def _move(self, typed: str) -> None:
        if self._is_over:
            near = near_match(typed, _WORDS)
            hint = f"did you mean {near}?" if near else "expected new, undo, pgn FILE or quit"
            raise GameInputError(f"{quoted(typed)}: {self._result()}; {hint}")
        try:
            move = read_move(self._board.line, typed)
        except GameInputError as error:
            near = near_match(typed.lower(), _WORDS)
            raise GameInputError(f"{quoted(typed)}: did you mean {near}?" if near else str(error)) from None
        self._board.push(self._board.line.move_to_text(move))
        if self._board.is_over:
            self._show()
            self._keep()

    def _do_hint(self) -> None:
        if self._is_over:
            raise GameInputError(self._result())
        found = self._search()
        self.write(f"for the side to move: {chances_text(found.wdl)}")
        for row in lines_text(found, HINT_LINES):
            self.write(row)

    def _do_undo(self) -> None:
        """Return to the person's previous turn."""
        before = self._board.copy()
        self._resigned, was_resigned = "", self._resigned
        if was_resigned:
            self._show()
            return
        try:
            self._board.pop()
            while self._board.turn != self._person:
                self._board.pop()
        except GameInputError:
            self._board, self._resigned = before, was_resigned
            raise GameInputError("undo: no move of yours to take back") from None
        self._show()

    def _do_flip(self) -> None:
        if not can_be_flipped(self._board.line):
            raise GameInputError(f"flip: a board of {self._board.game} cannot be flipped")
        self.style = replace(self.style, flipped=not self.style.flipped)
        self._show()

    def _do_moves(self) -> None:
        line = self._board.line
        played = Board(self._board.game, self._board.start)
        texts = []
        for move in self._board.moves:
            texts.append(played.san(move))
            played.push(move)
        self.write(f"played: {' '.join(texts) or 'none'}")
        legal = [] if self._is_over else [move_text(line, move) for move in line.legal()]
        self.write(f"legal: {' '.join(legal) or 'none'}")

    def _do_resign(self) -> None:
        if self._is_over:
            raise GameInputError(self._result())
        self._resigned = "0-1" if self._person == "first" else "1-0"
        self._show()
        self._keep()

    def _do_new(self, side: str) -> None:
        chosen = SIDE_WORDS.get(side.lower(), side.lower()) or self._person
        if chosen not in SIDES:
            raise GameInputError(f"new {side}: expected {', '.join((*SIDES, *SIDE_WORDS))}")
        self._keep()
        self._begin(chosen)
        self._show()

    def _do_fen(self, position: str) -> None:
        if not position:
            self.write(self._board.fen)
            return
        Board(self.net.game, position)  # raises for a position that is none
        self._keep()
        self.start, self.moves = position, ()
        self._begin(self._person)
        self._show()

    def _keep(self) -> None:
        """Add the game to the file of --pgn, once."""
        path, moves = self.pgn, self._board.moves
        if path is None or not moves or moves == self._kept:
            return
        self._kept = moves
        self._add_to(path)

    def _add_to(self, path: Path) -> None:
        """Add the game to the end of a PGN file. Raises GameInputError where it cannot be written."""
        require_chess(self._board.game, "pgn")
        players = ("human", f"alphazero {Path(self.net.source).name}")
        text = pgn_of(self._board, players if self._person == "first" else players[::-1], self._resigned)
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise GameInputError(f"{path}: cannot be written: {error.strerror}") from error
        self.write(f"added to {path}")
