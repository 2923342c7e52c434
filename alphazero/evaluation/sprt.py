"""The sequential probability ratio test of two players, as fastchess and fishtest make it.

The log-likelihood ratio is that of the most likely distributions with the two strengths in question
(generalised SPRT; Van den Bergh, "Comparing the approximations for the generalized log likelihood ratio of a
multinomial distribution", 1.1-1.3, and "Comments on normalized Elo", 4.1-4.9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from alphazero.errors import ConfigError
from alphazero.evaluation.elo import NELO_PER_SIGMA

Model = Literal["normalized", "logistic"]
Decision = Literal["H0", "H1", "continue"]

EMPTY = 1e-3  # stands for an outcome that has not been seen, as in fastchess
ROUNDS = 10  # of the normalized model's iteration, which fastchess ends there at the latest
CLOSE_ENOUGH = 1e-4  # as in fastchess


@dataclass(frozen=True)
class Sprt:
    """H0: the strength is elo0; H1: it is elo1. alpha, beta: the shares of wrong decisions for H1 and for H0.

    Raises ConfigError for values that make no test.
    """

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05
    model: Model = "normalized"

    def __post_init__(self) -> None:
        if not self.elo0 < self.elo1 or not math.isfinite(self.elo1 - self.elo0):
            raise ConfigError(f"--sprt {self.elo0:g} {self.elo1:g}: expected the first below the second")
        if min(self.alpha, self.beta) <= 0 or self.alpha + self.beta >= 1:
            raise ConfigError(
                f"--sprt: alpha {self.alpha:g}, beta {self.beta:g}: expected both above 0, their sum below 1"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The log-likelihood ratios at which H0 and H1 are accepted (Wald 1945)."""
        return math.log(self.beta / (1 - self.alpha)), math.log((1 - self.beta) / self.alpha)

    def log_likelihood_ratio(self, counts: Sequence[int]) -> float:
        """Of H1 over H0. counts: how often each score came, from the lowest to the highest, evenly spaced.

        Five counts are those of pairs of games (pentanomial), three those of games.
        """
        if not any(counts):
            return 0.0
        seen = [count or EMPTY for count in counts]
        total = sum(seen)
        shares = [count / total for count in seen]
        scores = [place / (len(counts) - 1) for place in range(len(counts))]
        if self.model == "logistic":
            low, high = (_with_mean(scores, shares, expected_score(elo)) for elo in (self.elo0, self.elo1))
        else:
            games = math.sqrt(2.0) if len(counts) == 5 else 1.0  # a pair's mean varies less than a game's
            low, high = (
                _with_distance(scores, shares, games * elo / NELO_PER_SIGMA) for elo in (self.elo0, self.elo1)
            )
        return total * sum(
            share * math.log(above / below) for share, below, above in zip(shares, low, high, strict=True)
        )

    def decide(self, counts: Sequence[int]) -> Decision:
        """Whether the games are enough, and for which of the two."""
        ratio, (lower, upper) = self.log_likelihood_ratio(counts), self.bounds
        if ratio >= upper:
            return "H1"
        return "H0" if ratio <= lower else "continue"


def expected_score(elo: float) -> float:
    """The points per game that a player so much stronger expects (logistic)."""
    return 1 / (1 + 10 ** (-elo / 400))


def _with_mean(scores: Sequence[float], shares: Sequence[float], mean: float) -> list[float]:
    """The most likely distribution with that mean, of what was seen as `shares`."""
    distances = [score - mean for score in scores]
    return _tilted(shares, distances)


def _with_distance(scores: Sequence[float], shares: Sequence[float], distance: float) -> list[float]:
    """The most likely distribution whose mean lies `distance` of its standard deviations above 0.5."""
    found = [1 / len(scores)] * len(scores)
    for _ in range(ROUNDS):
        mean = sum(share * score for share, score in zip(found, scores, strict=True))
        sigma = math.sqrt(
            sum(share * (score - mean) ** 2 for share, score in zip(found, scores, strict=True))
        )
        slopes = [
            score - 0.5 - 0.5 * distance * sigma * (1 + ((score - mean) / sigma) ** 2) for score in scores
        ]
        before, found = found, _tilted(shares, slopes)
        if max(abs(now - then) for now, then in zip(found, before, strict=True)) < CLOSE_ENOUGH:
            break
    return found


def _tilted(shares: Sequence[float], slopes: Sequence[float]) -> list[float]:
    """shares / (1 + theta slopes), with the theta that makes their mean slope 0."""

    def mean_slope(theta: float) -> float:
        return sum(share * slope / (1 + theta * slope) for share, slope in zip(shares, slopes, strict=True))

    theta = _zero(mean_slope, -1 / max(slopes), -1 / min(slopes))
    return [share / (1 + theta * slope) for share, slope in zip(shares, slopes, strict=True)]


def _zero(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is 0, between two places where it is infinite."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):  # neighbours in floating point
            return middle
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
