"""Games ended early: drawn or lost by their players' scores, or too long; names as in fastchess."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_MATE = 1000  # moves


@dataclass(frozen=True)
class Score:
    """What a player says of its position: centipawns, or moves to mate (negative: it is mated)."""

    cp: int = 0
    mate: int | None = None

    @property
    def is_bad(self) -> bool:
        """Whether the player sees itself behind."""
        return self.mate <= 0 if self.mate is not None else self.cp < 0

    def __str__(self) -> str:
        """As fastchess writes it in PGN: +0.35, -M5."""
        if self.mate is not None:
            return f"{'-' if self.mate <= 0 else '+'}M{abs(self.mate)}"
        return f"{self.cp / 100:+.2f}"


def score_of_value(value: float) -> Score:
    """Centipawns of a network's value, -1 to 1, by lc0's formula."""
    return Score(round(90 * math.tan(1.5637541897 * value)))


@dataclass(frozen=True)
class DrawRule:
    """Drawn once movenumber moves are over and 2 * movecount scores in turn are within `score`."""

    movenumber: int
    movecount: int
    score: int


@dataclass(frozen=True)
class ResignRule:
    """Lost once a player's movecount scores in turn are `score` or more behind; twosided: both must agree."""

    movecount: int
    score: int
    twosided: bool = False


@dataclass(frozen=True)
class Adjudication:
    """max_plies: a game that long is drawn."""

    draw: DrawRule | None = None
    resign: ResignRule | None = None
    max_plies: int = 512


class Judge:
    """Watches the scores of one game."""

    def __init__(self, rules: Adjudication) -> None:
        self._rules = rules
        self._quiet = 0
        self._behind = {True: 0, False: 0}
        self._decided = 0

    @property
    def asks_for_scores(self) -> bool:
        """Whether note() need be called at all."""
        return self._rules.draw is not None or self._rules.resign is not None

    def note(self, score: Score | None, by_white: bool, *, resets_clock: bool) -> None:
        """Take in a move's score. resets_clock: it was a capture or a pawn's move."""
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

        score, moved_white: of the last move. move_number: moves that are over.
        """
        draw, resign = self._rules.draw, self._rules.resign
        if resign and score is not None and score.is_bad:
            count = self._decided if resign.twosided else self._behind[moved_white]
            if count >= resign.movecount * (2 if resign.twosided else 1):
                return 0.0 if moved_white else 1.0
        if draw and move_number >= draw.movenumber and self._quiet >= 2 * draw.movecount:
            return 0.5
        return None
