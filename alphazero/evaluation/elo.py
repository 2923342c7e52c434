"""The result of a match between two players: counts of games and of pairs, Elo, likelihood of superiority."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Two-sided 95 % of the normal distribution.
Z_95 = 1.959964
# Pairs of games from which on their mean is taken for normal; below, the interval is Jeffreys'.
ENOUGH_PAIRS = 30
DRAWS_OF_POSTERIOR = 50_000
JEFFREYS = 0.5
# A normalized Elo is a distance of the mean from 0.5 in standard deviations of a game, times this.
NELO_PER_SIGMA = 800 / math.log(10)


@dataclass(frozen=True)
class EloEstimate:
    """The first player's Elo above the second's, logistic, with the ends of its 95 % interval; all finite.

    superiority: the probability that the first player is the stronger one (LOS).
    """

    elo: float
    low: float
    high: float
    superiority: float


@dataclass(frozen=True)
class MatchScore:
    """Games of the first player, and the pairs that they make: the same opening with either side.

    pairs: how many gave 0, 1/2, 1, 3/2 and 2 points (the pentanomial); all 0 where games were not paired.
    """

    wins: int
    draws: int
    losses: int
    pairs: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)

    @property
    def games(self) -> int:
        """All games."""
        return self.wins + self.draws + self.losses

    @property
    def share(self) -> float:
        """Points per game, 0 to 1; a draw is half a point."""
        return (self.wins + 0.5 * self.draws) / max(1, self.games)

    @property
    def counts(self) -> tuple[int, ...]:
        """What an interval and a test are made of: pairs, else losses, draws and wins."""
        return self.pairs if any(self.pairs) else (self.losses, self.draws, self.wins)

    def __add__(self, other: MatchScore) -> MatchScore:
        """Of both matches together."""
        lowest, low, even, high, highest = map(sum, zip(self.pairs, other.pairs, strict=True))
        return MatchScore(
            self.wins + other.wins,
            self.draws + other.draws,
            self.losses + other.losses,
            (lowest, low, even, high, highest),
        )

    def reversed(self) -> MatchScore:
        """For the other player."""
        lowest, low, even, high, highest = self.pairs
        return MatchScore(self.losses, self.draws, self.wins, (highest, high, even, low, lowest))

    def normalized_elo(self) -> tuple[float, float] | None:
        """The distance of the points per game from 1/2 in standard deviations, and half its 95 % interval.

        As fastchess has it; None where all pairs gave the same.
        """
        mean, variance, total = self._moments()
        if not variance:
            return None
        games = 2 if any(self.pairs) else 1  # in what is counted
        scale = NELO_PER_SIGMA / math.sqrt(games * variance)
        return (mean - 0.5) * scale, Z_95 * math.sqrt(variance / total) * scale

    def _moments(self) -> tuple[float, float, float]:
        """Mean, variance and number of the pairs' (else games') points, as shares of a win."""
        counts = np.array(self.counts, np.float64)
        total = float(counts.sum())
        if not total:
            return 0.5, 0.0, 0.0
        scores = np.linspace(0, 1, len(counts))
        mean = float(counts @ scores) / total
        return mean, float(counts @ (scores - mean) ** 2) / total, total

    def _is_normal(self) -> bool:
        """Whether the mean's normal interval may be used: many pairs, both its ends within 0 and 1."""
        mean, variance, total = self._moments()
        margin = Z_95 * math.sqrt(variance / total) if total else 0.0
        return total >= ENOUGH_PAIRS and margin > 0 and mean - margin > 0 and mean + margin < 1

    def elo(self) -> EloEstimate:
        """With many pairs as fastchess and fishtest compute it; with few, from Jeffreys' prior.

        Many: the normal interval of the mean of the pairs' points, its ends as Elo. Few, or where an end
        reaches 0 or 1 point per game: median and quantiles of the mean of a Dirichlet posterior, with half a
        pair of every outcome as its prior, which is wide, honest and never infinite.
        """
        if self._is_normal():
            mean, variance, total = self._moments()
            margin = Z_95 * math.sqrt(variance / total)
            superiority = (1 + math.erf((mean - 0.5) / math.sqrt(2 * variance / total))) / 2
            return EloEstimate(elo_of(mean), elo_of(mean - margin), elo_of(mean + margin), superiority)
        generator = np.random.default_rng(0)  # the same games, the same figures
        counts = np.array(self.counts, np.float64)
        means = generator.dirichlet(counts + JEFFREYS, DRAWS_OF_POSTERIOR) @ np.linspace(0, 1, len(counts))
        low, middle, high = (float(value) for value in np.quantile(means, (0.025, 0.5, 0.975)))
        return EloEstimate(elo_of(middle), elo_of(low), elo_of(high), float((means > 0.5).mean()))


def elo_of(share: float) -> float:
    """The Elo difference at which `share` points per game are expected, 0 < share < 1."""
    return -400 * math.log10(1 / share - 1)
