"""The rating of one player by games against opponents of known ratings, chosen near the present estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from alphazero.evaluation.elo import MatchScore

PAIRS_AT_ONCE = 8  # of games between two looks at the estimate
BEYOND = 800.0  # Elo below the lowest and above the highest opponent, where estimates end
STEP = 1.0  # Elo
TAIL = 0.025


@dataclass(frozen=True)
class Opponent:
    """One rung of the ladder."""

    name: str
    rating: float


@dataclass(frozen=True)
class Met:
    """All games against one opponent, for the player who is rated."""

    opponent: Opponent
    score: MatchScore


@dataclass(frozen=True)
class Estimate:
    """A rating with its 95 % interval, and the games that it comes from."""

    elo: float
    low: float
    high: float
    met: tuple[Met, ...]

    @property
    def games(self) -> int:
        """All games."""
        return sum(met.score.games for met in self.met)

    @property
    def is_beyond(self) -> str:
        """'above' or 'below' where the player won or lost all its games: the ladder has no end there."""
        wins, draws, losses = (
            sum(getattr(met.score, name) for met in self.met) for name in ("wins", "draws", "losses")
        )
        if draws or (wins and losses):
            return ""
        return "above" if wins else "below"


def estimate(met: Sequence[Met], ladder: Sequence[Opponent]) -> Estimate:
    """Median and quantiles of the rating given the results (Bradley-Terry), all in reach as likely before.

    A draw counts as half a win and half a loss: the interval is wider than it need be, never narrower.
    """
    ratings = [opponent.rating for opponent in ladder]
    grid = np.arange(min(ratings) - BEYOND, max(ratings) + BEYOND + STEP, STEP)
    likelihood = np.zeros(len(grid))
    for result in met:
        points = result.score.wins + 0.5 * result.score.draws
        distance = (grid - result.opponent.rating) * np.log(10) / 400
        likelihood -= points * np.logaddexp(0, -distance)
        likelihood -= (result.score.games - points) * np.logaddexp(0, distance)
    weight = np.exp(likelihood - likelihood.max())
    reached = np.cumsum(weight) / weight.sum()
    low, middle, high = (float(grid[np.searchsorted(reached, at)]) for at in (TAIL, 0.5, 1 - TAIL))
    return Estimate(middle, low, high, tuple(met))


def rate(
    ladder: Sequence[Opponent],
    play: Callable[[int, int, int], MatchScore],
    *,
    most_games: int,
    width: float,
    start: float | None = None,
    told: Callable[[Estimate], None] = lambda found: None,
) -> Estimate:
    """Play until the interval is at most `width` Elo wide or most_games are played.

    play(opponent, first_pair, pairs): the score of pairs numbered from first_pair against ladder[opponent].
    start: where the rating is looked for first, by default the middle of the ladder.
    """
    scores = [MatchScore(0, 0, 0)] * len(ladder)
    by_rating = sorted(range(len(ladder)), key=lambda index: ladder[index].rating)
    here = ladder[by_rating[len(ladder) // 2]].rating if start is None else start
    played = 0
    while True:
        nearest = min(by_rating, key=lambda index: abs(ladder[index].rating - here))
        pairs = min(PAIRS_AT_ONCE, (most_games - played) // 2)
        scores[nearest] += play(nearest, played // 2, pairs)
        played += 2 * pairs
        met = [Met(ladder[index], scores[index]) for index in by_rating if scores[index].games]
        found = estimate(met, ladder)
        told(found)
        if found.high - found.low <= width or played + 2 > most_games:
            return found
        here = found.elo
