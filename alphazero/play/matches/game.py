"""The games of a match: pairings from the same opening with sides reversed, play, adjudication, results.

Names and rules of adjudication are those of fastchess.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import chess

import alphazero._core as _core
from alphazero.games.tablebases import Tablebases
from alphazero.play.matches.limits import Clock, Limit
from alphazero.play.matches.openings import Opening
from alphazero.play.uci_protocol import centipawns


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


def score_of_value(value: float, mate: int | None = None) -> Score:
    """A proven mate, else centipawns of a network's value, -1 to 1, by lc0's formula."""
    return Score(centipawns(value)) if mate is None else Score(mate=mate)


@dataclass(frozen=True)
class DrawRule:
    """Drawn after movenumber moves once 2 * movecount consecutive scores are within `score`."""

    movenumber: int
    movecount: int
    score: int


@dataclass(frozen=True)
class ResignRule:
    """Lost once movecount consecutive scores of a player are -`score` or worse; twosided: both must agree."""

    movecount: int
    score: int
    twosided: bool = False


@dataclass(frozen=True)
class Adjudication:
    """max_plies: a game that long is drawn. syzygy: directories of tablebases, "": none (chess)."""

    draw: DrawRule | None = None
    resign: ResignRule | None = None
    max_plies: int = 512
    syzygy: str = ""


class Adjudicator:
    """Applies the rules to the scores of one game."""

    def __init__(self, rules: Adjudication) -> None:
        self._rules = rules
        self._quiet = 0
        self._behind = {True: 0, False: 0}
        self._decided = 0

    @property
    def asks_for_scores(self) -> bool:
        """Whether the rules need the scores."""
        return self._rules.draw is not None or self._rules.resign is not None

    def note(self, score: Score | None, by_white: bool, *, resets_clock: bool) -> None:
        """Record the score of a move. resets_clock: of a capture or a pawn move."""
        draw, resign = self._rules.draw, self._rules.resign
        if draw:
            if resets_clock:
                self._quiet = 0
            is_quiet = score is not None and score.mate is None and abs(score.cp) <= draw.score
            self._quiet = self._quiet + 1 if is_quiet else 0
        if resign:
            is_clear = score is not None and (score.mate is not None or abs(score.cp) >= resign.score)
            is_lost = is_clear and score is not None and score.is_bad
            self._behind[by_white] = self._behind[by_white] + 1 if is_lost else 0
            self._decided = self._decided + 1 if is_clear else 0

    def result(self, score: Score | None, moved_white: bool, move_number: int) -> float | None:
        """White's points where the rules end the game, else None.

        score, moved_white: of the last move. move_number: of full moves played.
        """
        draw, resign = self._rules.draw, self._rules.resign
        if resign and score is not None and score.is_bad:
            count = self._decided if resign.twosided else self._behind[moved_white]
            if count >= resign.movecount * (2 if resign.twosided else 1):
                return 0.0 if moved_white else 1.0
        if draw and move_number >= draw.movenumber and self._quiet >= 2 * draw.movecount:
            return 0.5
        return None


CHESS = "chess"


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
    """A game to be played. first: the contestant who has the first move of the game's rules (white).

    pair: games of the same number and players make a pair; number: counted from 1.
    """

    number: int
    pair: int
    first: int
    second: int
    opening: Opening


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
        self._max_plies = rules.max_plies
        self._judge = Adjudicator(rules)
        self._tables = tables
        self._decisions: list[Decision] = []
        self._started_s = time.monotonic()
        self._board: chess.Board | None = None

    @property
    def to_move(self) -> int:
        """The contestant to move."""
        return self.pairing.first if self.line.first_player_to_move else self.pairing.second

    @property
    def clock(self) -> Clock:
        """The clock of the player to move."""
        return self.clocks[self.line.first_player_to_move]

    def board(self) -> chess.Board:
        """python-chess's board with all moves; the game must be chess."""
        if self._board is None:
            opening = self.pairing.opening
            self._board = chess.Board(opening.start or chess.STARTING_FEN)
            for move in opening.moves:
                self._board.push_uci(move)
        for decision in self._decisions[len(self._board.move_stack) - len(self.pairing.opening.moves) :]:
            self._board.push_uci(decision.move)
        return self._board

    def play(self, decision: Decision) -> FinishedGame | None:
        """Play a legal move; returns the game where that ends it."""
        by_first = self.line.first_player_to_move
        self.line.push_text(decision.move)
        self._decisions.append(decision)
        outcome = self.line.outcome()
        if outcome.over:
            for_first = outcome.value if self.line.first_player_to_move else -outcome.value
            points = (1 + for_first) / 2
            return self._over(points, Ending.NORMAL, _words(self.game, outcome.termination, points))
        if self._tables is not None and (known := self._tables.result(str(self.line))) is not None:
            points = (1 + (known if self.line.first_player_to_move else -known)) / 2
            return self._over(
                points, Ending.ADJUDICATION, f"{self._winner(points)} by adjudication: tablebases"
            )
        if self._judge.asks_for_scores and self.game == CHESS:
            board = self.board()
            self._judge.note(decision.score, by_first, resets_clock=board.halfmove_clock == 0)
            verdict = self._judge.result(decision.score, by_first, board.fullmove_number - 1)
            if verdict is not None:
                return self._over(verdict, Ending.ADJUDICATION, f"{self._winner(verdict)} by adjudication")
        if self.line.num_plies >= self._max_plies:
            reason = f"Draw by adjudication: {self._max_plies} plies"
            return self._over(0.5, Ending.ADJUDICATION, reason)
        return None

    def forfeit(self, ending: Ending, reason: str) -> FinishedGame:
        """The player to move loses. reason: a phrase that follows its side."""
        first = self.line.first_player_to_move
        return self._over(0.0 if first else 1.0, ending, f"{side(self.game, first)} {reason}")

    def _winner(self, points: float) -> str:
        return "Draw" if points == 0.5 else f"{side(self.game, points == 1.0)} wins"

    def _over(self, points: float, ending: Ending, reason: str) -> FinishedGame:
        seconds = time.monotonic() - self._started_s
        return FinishedGame(self.pairing, points, ending, reason, tuple(self._decisions), seconds)


def side(game: str, is_first: bool) -> str:
    """The name of a side."""
    if game == CHESS:
        return "White" if is_first else "Black"
    return "The first player" if is_first else "The second player"


def _words(game: str, termination: _core.Termination, points: float) -> str:
    """Why a game with these points for its first player is over."""
    wins = f"{side(game, points == 1.0)} {'mates' if game == CHESS else 'wins'}"
    return {
        _core.Termination.WIN: wins,
        _core.Termination.BOARD_FULL: "The board is full",
        _core.Termination.STALEMATE: "Draw by stalemate",
        _core.Termination.REPETITION: "Draw by 3-fold repetition",
        _core.Termination.FIFTY_MOVES: "Draw by fifty moves rule",
        _core.Termination.INSUFFICIENT_MATERIAL: "Draw by insufficient mating material",
        _core.Termination.DRAW: "Draw",
    }[termination]


ROUND_ROBIN = "round-robin"
GAUNTLET = "gauntlet"
TOURNAMENTS = (ROUND_ROBIN, GAUNTLET)


def meetings(num_players: int, tournament: str) -> list[tuple[int, int]]:
    """The pairs of players: all of them, or the first with each other one."""
    if tournament == GAUNTLET:
        return [(0, other) for other in range(1, num_players)]
    return list(itertools.combinations(range(num_players), 2))


def games_of(met: Sequence[tuple[int, int]], openings: Sequence[Opening]) -> Iterator[Pairing]:
    """Two games for each opening and meeting, opening by opening."""
    number = 0
    for pair, opening in enumerate(openings):
        for first, second in met:
            yield Pairing(number + 1, pair, first, second, opening)
            yield Pairing(number + 2, pair, second, first, opening)
            number += 2
