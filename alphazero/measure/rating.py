"""Elo ratings from games: of a tournament's players, of one player on the ladder, of a run's checkpoints.

Bradley-Terry, a draw being half a win: i expects 1 / (1 + 10^((r_j - r_i) / 400)) points against j. The
ratings of a tournament are those of maximum likelihood (Bradley and Terry 1952; Hunter 2004) with a wide
normal prior around the mean of the field, which keeps those finite who won or lost every game. Intervals are
those of the likelihood's curvature, scaled by the observed variance of pairs (quasi-likelihood: McCullagh and
Nelder 1989, 9.2): draws and reversed pairs vary less than coins.

A ladder (ladder.py) is a list of opponents of known ratings; a player meets those near its present estimate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import CheckpointError
from alphazero.base.files import complete_lines, cut_unfinished_line
from alphazero.measure.elo import ENOUGH_PAIRS, Z_95, MatchScore
from alphazero.network.weights.open_network import weights_of_checkpoint
from alphazero.network.weights.weights import weights_file_name, write_weights
from alphazero.play.matches.players import Player
from alphazero.run import checkpoint_files as files
from alphazero.run.directory import RunDirectory

# Shapes: P players, K meetings of two players.

ELO_PER_UNIT = 400 / math.log(10)
PRIOR_ELO = 1000.0  # standard deviation
ROUNDS = 200  # of Newton's method, which needs some ten
LONGEST_STEP = 2.0  # in natural units (347 Elo): far from the solution the method would jump
CLOSE_ENOUGH = 1e-9
DISPERSION = (0.2, 2.0)  # bounds, as few surprising games estimate it badly


@dataclass(frozen=True)
class Rating:
    """Elo above the mean of the field, with the ends of its 95 % interval."""

    elo: float
    low: float
    high: float


def ratings(num_players: int, scores: Mapping[tuple[int, int], MatchScore]) -> list[Rating]:
    """scores: of the first of each two players who met."""
    met = [pair for pair, score in scores.items() if score.games]
    sides_KP = np.zeros((len(met), num_players))
    for row, (first, second) in enumerate(met):
        sides_KP[row, first], sides_KP[row, second] = 1, -1
    games_K = np.array([scores[pair].games for pair in met], np.float64)
    points_K = np.array([scores[pair].share * scores[pair].games for pair in met])
    strength_P = np.zeros(num_players)
    for _ in range(ROUNDS):
        _, slope_P, curve_PP = _likelihood(strength_P, sides_KP, games_K, points_K)
        step_P = np.linalg.solve(curve_PP, slope_P)
        strength_P += np.clip(step_P, -LONGEST_STEP, LONGEST_STEP)
        if np.abs(step_P).max() < CLOSE_ENOUGH:
            break
    expected_K, _, curve_PP = _likelihood(strength_P, sides_KP, games_K, points_K)
    from_mean_PP = np.eye(num_players) - 1 / num_players
    spread = _dispersion([scores[pair] for pair in met], expected_K, num_players)
    variance_P = spread * np.diag(from_mean_PP @ np.linalg.inv(curve_PP) @ from_mean_PP)
    elo_P, half_P = ELO_PER_UNIT * strength_P, ELO_PER_UNIT * Z_95 * np.sqrt(variance_P)
    return [
        Rating(float(elo), float(elo - half), float(elo + half))
        for elo, half in zip(elo_P, half_P, strict=True)
    ]


def _likelihood(
    strength_P: npt.NDArray[np.float64],
    sides_KP: npt.NDArray[np.float64],
    games_K: npt.NDArray[np.float64],
    points_K: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Expected points [K]; slope [P] and negative curvature [P, P] of its logarithm, with the prior."""
    precision = (ELO_PER_UNIT / PRIOR_ELO) ** 2
    expected_K = 1 / (1 + np.exp(-sides_KP @ strength_P))
    slope_P = sides_KP.T @ (points_K - games_K * expected_K) - precision * strength_P
    weight_K = games_K * expected_K * (1 - expected_K)
    curve_PP = (sides_KP.T * weight_K) @ sides_KP + precision * np.eye(len(strength_P))
    return expected_K, slope_P, curve_PP


def _dispersion(met: list[MatchScore], expected_K: npt.NDArray[np.float64], num_players: int) -> float:
    """The pairs' variance as a share of that of two coins each; 1 while there are few pairs."""
    pairs = sum(sum(score.pairs) for score in met)
    if pairs < ENOUGH_PAIRS + num_players:
        return 1.0
    squares = 0.0
    for score, expected in zip(met, expected_K, strict=True):
        for half_points, count in enumerate(score.pairs):
            squares += count * (half_points / 2 - 2 * expected) ** 2 / (2 * expected * (1 - expected))
    low, high = DISPERSION
    return float(min(high, max(low, squares / (pairs - num_players + 1))))


PAIRS_AT_ONCE = 8  # of games between two looks at the estimate
BEYOND = 800.0  # Elo below the lowest and above the highest opponent, where estimates end
STEP = 1.0  # Elo
TAIL = 0.025


@dataclass(frozen=True)
class Rung:
    """An opponent of a ladder, and its rating on the ladder's scale."""

    player: Player
    rating: float


@dataclass(frozen=True)
class LadderRating(Rating):
    """A rating on the ladder's scale, with all games that it comes from by opponent."""

    met: tuple[tuple[Rung, MatchScore], ...]

    @property
    def games(self) -> int:
        """All games."""
        return sum(score.games for _, score in self.met)

    @property
    def beyond(self) -> str:
        """'above' or 'below' where the player won or lost all its games: the rating is then a bound."""
        points = sum(score.share * score.games for _, score in self.met)
        return "above" if points == self.games else "" if points else "below"


def posterior(met: Iterable[tuple[float, float, int]], ratings: Sequence[float]) -> Rating:
    """Median and 95 % quantiles of a player's rating (Bradley-Terry), the prior uniform from BEYOND below the
    lowest of `ratings` to BEYOND above the highest.

    met: ratings of opponents, points against them, games. A draw counts as half a win and half a loss: the
    interval is wider than it need be, never narrower.
    """
    grid = np.arange(min(ratings) - BEYOND, max(ratings) + BEYOND + STEP, STEP)
    likelihood = np.zeros(len(grid))
    for rating, points, games in met:
        distance = (grid - rating) * np.log(10) / 400
        likelihood -= points * np.logaddexp(0, -distance)
        likelihood -= (games - points) * np.logaddexp(0, distance)
    weight = np.exp(likelihood - likelihood.max())
    reached = np.cumsum(weight) / weight.sum()
    low, middle, high = (float(grid[np.searchsorted(reached, at)]) for at in (TAIL, 0.5, 1 - TAIL))
    return Rating(middle, low, high)


def estimate(met: Sequence[tuple[Rung, MatchScore]], ladder: Sequence[Rung]) -> LadderRating:
    """The rating of a player on the ladder by its games with some of the rungs."""
    games = [(rung.rating, score.wins + 0.5 * score.draws, score.games) for rung, score in met]
    rating = posterior(games, [rung.rating for rung in ladder])
    return LadderRating(rating.elo, rating.low, rating.high, tuple(met))


def rate(
    ladder: Sequence[Rung],
    play: Callable[[int, int, int], MatchScore],
    *,
    most_games: int,
    width: float,
    start: float | None = None,
    report: Callable[[LadderRating], None] = lambda rating: None,
) -> LadderRating:
    """Play against the rungs nearest to the estimate, until its interval is narrow enough.

    That is at most `width` Elo, or until most_games are played. play(opponent, first_pair, pairs): the score
    of pairs numbered from first_pair against ladder[opponent]. start: the first estimate, by default the
    middle of the ladder. report is called with each estimate.
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
        met = [(ladder[index], scores[index]) for index in by_rating if scores[index].games]
        rating = estimate(met, ladder)
        report(rating)
        if rating.high - rating.low <= width or played + 2 > most_games:
            return rating
        here = rating.elo


RATINGS = "ratings.jsonl"
METRIC = "elo"


def keep_rating(run: Path, rating: Mapping[str, Any]) -> None:
    """Append the rating of a checkpoint: `step`, `elo`, how it played (`limit`), anything else."""
    file = run / RATINGS
    cut_unfinished_line(file)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(dict(rating)) + "\n")


def mark_best_rated(run: Path) -> tuple[Path, float] | None:
    """Mark the strongest checkpoint best-elo and write its weights as a file; returns it and its Elo.

    The newest rating of a checkpoint counts, if it was made at the limit and on the ladder of the newest of
    all: others are not comparable. None where no complete checkpoint has a rating.
    """
    ratings = list(_ratings_in(run / RATINGS))
    of_steps = {
        rating["step"]: rating[METRIC]
        for rating in ratings
        if all(rating.get(name) == ratings[-1].get(name) for name in ("limit", "ladder"))
    }
    directory = RunDirectory(run).checkpoints
    rated = {
        path: of_steps[step]
        for path in files.checkpoints_in(directory)
        if (step := files.step_of(path)) in of_steps
    }
    for best, elo in sorted(rated.items(), key=lambda item: -item[1]):
        try:
            files.verify(best, hash_files=False)
        except CheckpointError:
            continue
        files.mark_strongest(best, elo)
        weights = weights_of_checkpoint(best)
        write_weights(run / weights_file_name(weights.config, METRIC), weights)
        return best, elo
    return None


def _ratings_in(file: Path) -> Iterator[dict[str, Any]]:
    """The ratings of a file, without damaged lines."""
    for line in complete_lines(file):
        try:
            rating = json.loads(line)
        except (ValueError, RecursionError):
            continue
        numbers = [rating.get(name) for name in ("step", METRIC)] if isinstance(rating, dict) else [None]
        if all(files.is_number(number) and math.isfinite(number) for number in numbers):
            yield rating
