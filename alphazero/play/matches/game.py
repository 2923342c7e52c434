"""A game of a match: its pairing, its play, adjudication and result.

Names and rules of adjudication are those of fastchess.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import alphazero._core as _core
from alphazero.games.registry import CHESS
from alphazero.games.tablebases import Tablebases
from alphazero.play.matches.limits import Clock, Limit
from alphazero.play.matches.openings import Opening

if TYPE_CHECKING:
    import chess


@dataclass(frozen=True)
class Score:
    """A player's score of its position: centipawns, or moves to mate (negative: it is mated)."""

    cp: int = 0
    mate: int | None = None

    @property
    def is_bad(self) -> bool:
        """Whether the score is negative for the player."""
        return self.mate <= 0 if self.mate is not None else self.cp < 0

    def __str__(self) -> str:
        """As fastchess writes it in PGN: +0.35, -M5."""
        if self.mate is not None:
            return f"{'-' if self.mate <= 0 else '+'}M{abs(self.mate)}"
        return f"{self.cp / 100:+.2f}"


@dataclass(frozen=True)
class DrawRule:
    """Drawn after movenumber moves once 2 * movecount consecutive scores are within `score`."""

    movenumber: int
    movecount: int
    score: int


@dataclass(frozen=True)
class ResignRule:
    """Lost once movecount consecutive scores of a player are -`score` or worse."""

    movecount: int
    score: int


@dataclass(frozen=True)
class Adjudication:
    """max_plies: a game that long is drawn. syzygy: directories of tablebases, "": none (chess)."""

    draw: DrawRule | None = None
    resign: ResignRule | None = None
    max_plies: int = 512
    syzygy: str = ""


class Adjudicator:
    """Applies the rules to the scores of one game of chess."""

    def __init__(self, rules: Adjudication) -> None:
        self._draw, self._resign = rules.draw, rules.resign
        self._quiet = 0  # scores in a row within the draw rule's
        self._behind = {True: 0, False: 0}  # scores in a row of white and of black that are lost

    def points(
        self, score: Score | None, by_white: bool, *, resets_clock: bool, move_number: int
    ) -> float | None:
        """White's points where the rules end the game after a move with this score, else None.

        resets_clock: of a capture or a pawn move. move_number: of full moves played.
        """
        if resign := self._resign:
            is_beyond = score is not None and (score.mate is not None or abs(score.cp) >= resign.score)
            is_lost = score is not None and score.is_bad and is_beyond
            self._behind[by_white] = self._behind[by_white] + 1 if is_lost else 0
            if is_lost and self._behind[by_white] >= resign.movecount:
                return 0.0 if by_white else 1.0
        if draw := self._draw:
            is_quiet = score is not None and score.mate is None and abs(score.cp) <= draw.score
            self._quiet = is_quiet + (0 if resets_clock or not is_quiet else self._quiet)
            if move_number >= draw.movenumber and self._quiet >= 2 * draw.movecount:
                return 0.5
        return None


class Ending(str, Enum):
    """PGN's Termination, in fastchess's words."""

    NORMAL = "normal"
    ADJUDICATION = "adjudication"
    TIME = "time forfeit"
    ILLEGAL = "illegal move"
    ABANDONED = "abandoned"  # a player crashed or did not answer


@dataclass(frozen=True)
class Decision:
    """A player's move; nodes and depth are 0 where they are not known."""

    move: str
    score: Score | None = None
    depth: int = 0
    nodes: int = 0
    time_s: float = 0.0


@dataclass(frozen=True)
class Pairing:
    """A game to be played. first: the number of the player who moves first by the game's rules (white).

    pair: games of the same number and players make a pair; number: counted from 1.
    """

    number: int
    pair: int
    first: int
    second: int
    opening: Opening


def pairings_of(
    num_players: int, openings: Sequence[Opening], *, gauntlet: bool = False
) -> Iterator[Pairing]:
    """Two games for each opening and each two players, opening by opening.

    gauntlet: only the first player meets all others.
    """
    number = 0
    for pair, opening in enumerate(openings):
        for first, second in itertools.combinations(range(num_players), 2):
            if first and gauntlet:
                break
            yield Pairing(number + 1, pair, first, second, opening)
            yield Pairing(number + 2, pair, second, first, opening)
            number += 2


@dataclass(frozen=True)
class FinishedGame:
    """points: those of the pairing's first player. decisions: the moves after the opening's."""

    pairing: Pairing
    points: float
    ending: Ending
    reason: str
    decisions: tuple[Decision, ...]
    seconds: float

    @property
    def plies(self) -> int:
        """Moves of both sides, with those of the opening."""
        return len(self.pairing.opening.moves) + len(self.decisions)


class LiveGame:
    """A game in progress, from its opening on."""

    def __init__(
        self,
        game: str,
        pairing: Pairing,
        rules: Adjudication,
        first: Limit,
        second: Limit,
        tables: Tablebases | None = None,
    ) -> None:
        """first, second: the limits of the two players. tables: those of the rules."""
        self.game = game
        self.pairing = pairing
        self.line = pairing.opening.line(game)
        self.clocks = {True: Clock(first), False: Clock(second)}  # by whether it is the first player's
        self.is_waiting = False  # for an engine's move
        self._rules = rules
        self._judge = Adjudicator(rules) if game == CHESS and (rules.draw or rules.resign) else None
        self._tables = tables
        self._decisions: list[Decision] = []
        self._started_s = time.monotonic()

    @property
    def to_move(self) -> int:
        """The number of the player to move."""
        return self.pairing.first if self.line.first_player_to_move else self.pairing.second

    @property
    def clock(self) -> Clock:
        """The clock of the player to move."""
        return self.clocks[self.line.first_player_to_move]

    def board(self) -> chess.Board:
        """python-chess's board with all moves; the game must be chess."""
        import chess  # self-play and its gate do without

        opening = self.pairing.opening
        board = chess.Board(opening.start or chess.STARTING_FEN, chess960=opening.chess960)
        for move in (*opening.moves, *(decision.move for decision in self._decisions)):
            board.push_uci(move)
        return board

    def play(self, decision: Decision) -> FinishedGame | None:
        """Play a legal move; returns the game where that ends it."""
        by_first = self.line.first_player_to_move
        self.line.push_text(decision.move)
        self._decisions.append(decision)
        outcome, is_first = self.line.outcome(), self.line.first_player_to_move
        if outcome.over:
            points = (1 + (outcome.value if is_first else -outcome.value)) / 2
            return self._over(points, Ending.NORMAL, _words(self.game, outcome.termination, points))
        if self._tables is not None and (known := self._tables.result(str(self.line))) is not None:
            return self._adjudicated((1 + (known if is_first else -known)) / 2, ": tablebases")
        if self._judge is not None:
            clock, number = map(int, str(self.line).split()[4:6])  # of the FEN
            verdict = self._judge.points(
                decision.score, by_first, resets_clock=clock == 0, move_number=number - 1
            )
            if verdict is not None:
                return self._adjudicated(verdict)
        if self.line.num_plies >= self._rules.max_plies:
            return self._adjudicated(0.5, f": {self._rules.max_plies} plies")
        return None

    def forfeit(self, ending: Ending, reason: str) -> FinishedGame:
        """The player to move loses. reason: a phrase that follows its side."""
        first = self.line.first_player_to_move
        return self._over(0.0 if first else 1.0, ending, f"{_side(self.game, first)} {reason}")

    def _adjudicated(self, points: float, why: str = "") -> FinishedGame:
        verdict = "Draw" if points == 0.5 else f"{_side(self.game, points == 1.0)} wins"
        return self._over(points, Ending.ADJUDICATION, f"{verdict} by adjudication{why}")

    def _over(self, points: float, ending: Ending, reason: str) -> FinishedGame:
        seconds = time.monotonic() - self._started_s
        return FinishedGame(self.pairing, points, ending, reason, tuple(self._decisions), seconds)


def _side(game: str, is_first: bool) -> str:
    if game == CHESS:
        return "White" if is_first else "Black"
    return "The first player" if is_first else "The second player"


def _words(game: str, termination: _core.Termination, points: float) -> str:
    """Why a game with these points for its first player is over."""
    return {
        _core.Termination.WIN: f"{_side(game, points == 1.0)} {'mates' if game == CHESS else 'wins'}",
        _core.Termination.BOARD_FULL: "The board is full",
        _core.Termination.STALEMATE: "Draw by stalemate",
        _core.Termination.REPETITION: "Draw by 3-fold repetition",
        _core.Termination.FIFTY_MOVES: "Draw by fifty moves rule",
        _core.Termination.INSUFFICIENT_MATERIAL: "Draw by insufficient mating material",
        _core.Termination.DRAW: "Draw",
    }[termination]
