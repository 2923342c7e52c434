"""Two players compared: the score of a match with its Elo, and its SPRT.

The SPRT is that of fastchess and fishtest: the log-likelihood ratio of the most likely distributions with the
two strengths in question (generalised SPRT; Van den Bergh, "Comparing the approximations for the generalized
log likelihood ratio of a multinomial distribution", 1.1-1.3, and "Comments on normalized Elo", 4.1-4.9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import ConfigError

# Two-sided 95 % of the normal distribution.
Z_95 = 1.959964
# Pairs from which on the normal interval of their mean is taken; that of fewer is too narrow.
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
    pairs: tuple[int, ...] = (0, 0, 0, 0, 0)

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
        """The counts of an interval and a test: pairs, else losses, draws and wins."""
        return self.pairs if any(self.pairs) else (self.losses, self.draws, self.wins)

    def __add__(self, other: MatchScore) -> MatchScore:
        """The score of both matches together."""
        return MatchScore(
            self.wins + other.wins,
            self.draws + other.draws,
            self.losses + other.losses,
            tuple(map(sum, zip(self.pairs, other.pairs, strict=True))),
        )

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

    def elo(self) -> EloEstimate:
        """As fastchess and fishtest compute it; the interval of few pairs is from Jeffreys' prior.

        Theirs: the mean of the pairs' points and its normal interval, as Elo. With few pairs, or where that
        interval is empty or reaches 0 or 1 point per game: quantiles of the mean of a Dirichlet posterior,
        with half a pair of every outcome as its prior, which is wide and never infinite. Its median stands
        for an infinite Elo.
        """
        mean, variance, total = self._moments()
        deviation = math.sqrt(variance / total) if total else 0.0
        low, high = mean - Z_95 * deviation, mean + Z_95 * deviation
        is_normal = deviation > 0 and low > 0 and high < 1
        if is_normal and total >= ENOUGH_PAIRS:
            return EloEstimate(elo_of(mean), elo_of(low), elo_of(high), _superiority(mean, deviation))
        means = self._posterior()
        low, middle, high = (float(value) for value in np.quantile(means, (0.025, 0.5, 0.975)))
        middle = mean if low < mean < high else middle
        superiority = _superiority(mean, deviation) if is_normal else float((means > 0.5).mean())
        return EloEstimate(elo_of(middle), elo_of(low), elo_of(high), superiority)

    def _posterior(self) -> npt.NDArray[np.float64]:
        """Draws of the mean points per game, the same for the same games."""
        counts = np.array(self.counts, np.float64) + JEFFREYS
        draws = np.random.default_rng(0).dirichlet(counts, DRAWS_OF_POSTERIOR)
        return draws @ np.linspace(0, 1, len(counts))


def _superiority(mean: float, deviation: float) -> float:
    """The probability that a normal value is above 1/2."""
    return (1 + math.erf((mean - 0.5) / (math.sqrt(2) * deviation))) / 2


def elo_of(share: float) -> float:
    """The Elo difference at which `share` points per game are expected, 0 < share < 1."""
    return -400 * math.log10(1 / share - 1) + 0.0  # at 1/2 it is 0, not -0


@dataclass(frozen=True)
class PairedErrors:
    """Positions by which of two players errs; those where both or neither err do not distinguish them."""

    positions: int
    both: int
    only_first: int
    only_second: int

    @property
    def difference(self) -> float:
        """The second player's share of errors minus the first's."""
        return (self.only_second - self.only_first) / self.positions

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the difference's 95 % interval, by the variance of pairs.

        One position is added to each count of those where only one errs (Bonett and Price 2012), so that
        a few positions, or none, do not make it certain.
        """
        total = self.positions + 2
        first, second = (self.only_first + 1) / total, (self.only_second + 1) / total
        middle = second - first
        radius = Z_95 * math.sqrt((first + second - middle**2) / total)
        return max(-1.0, middle - radius), min(1.0, middle + radius)


def paired_errors(first: Sequence[bool], second: Sequence[bool]) -> PairedErrors:
    """Of two players' errors on the same positions, in the same order."""
    pairs = list(zip(first, second, strict=True))
    return PairedErrors(
        len(pairs), pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))
    )


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
    def unit(self) -> str:
        """The unit of elo0 and elo1."""
        return "nElo" if self.model == "normalized" else "Elo"

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
        scores = [index / (len(counts) - 1) for index in range(len(counts))]
        if self.model == "logistic":
            means = (expected_score(elo) for elo in (self.elo0, self.elo1))
            low, high = (_tilted(shares, [score - mean for score in scores]) for mean in means)
        else:
            games = math.sqrt(2.0) if len(counts) == 5 else 1.0  # a pair's mean varies less than a game's
            low, high = (
                _with_distance(scores, shares, games * elo / NELO_PER_SIGMA) for elo in (self.elo0, self.elo1)
            )
        return total * sum(
            share * math.log(above / below) for share, below, above in zip(shares, low, high, strict=True)
        )

    def decide(self, counts: Sequence[int]) -> Decision:
        """The hypothesis that is accepted, or 'continue'."""
        ratio, (lower, upper) = self.log_likelihood_ratio(counts), self.bounds
        if ratio >= upper:
            return "H1"
        return "H0" if ratio <= lower else "continue"


def expected_score(elo: float) -> float:
    """The points per game that a player so much stronger expects (logistic)."""
    return 1 / (1 + 10 ** (-elo / 400))


def _with_distance(scores: Sequence[float], shares: Sequence[float], distance: float) -> list[float]:
    """The most likely distribution whose mean lies `distance` of its standard deviations above 0.5."""
    distribution = [1 / len(scores)] * len(scores)
    for _ in range(ROUNDS):
        mean = sum(share * score for share, score in zip(distribution, scores, strict=True))
        sigma = math.sqrt(
            sum(share * (score - mean) ** 2 for share, score in zip(distribution, scores, strict=True))
        )
        slopes = [
            score - 0.5 - 0.5 * distance * sigma * (1 + ((score - mean) / sigma) ** 2) for score in scores
        ]
        before, distribution = distribution, _tilted(shares, slopes)
        if max(abs(now - then) for now, then in zip(distribution, before, strict=True)) < CLOSE_ENOUGH:
            break
    return distribution


def _tilted(shares: Sequence[float], slopes: Sequence[float]) -> list[float]:
    """shares / (1 + theta slopes), with the theta that makes their mean slope 0.

    It is the most likely distribution of that mean slope, of what was seen as `shares`.
    """

    def mean_slope(theta: float) -> float:
        return sum(share * slope / (1 + theta * slope) for share, slope in zip(shares, slopes, strict=True))

    theta = zero_of(mean_slope, -1 / max(slopes), -1 / min(slopes))
    return [share / (1 + theta * slope) for share, slope in zip(shares, slopes, strict=True)]


def zero_of(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls between two places is 0, or the end where it is not; by halving."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):  # neighbours in floating point
            return middle
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
