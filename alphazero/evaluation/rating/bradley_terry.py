"""Ratings of all players of a tournament from their games: Bradley-Terry, a draw being half a win.

The expected points of i against j are 1 / (1 + 10^((r_j - r_i) / 400)); the ratings are those of maximum
likelihood (Bradley and Terry 1952; Hunter 2004) with a wide normal prior around the mean of the field, which
keeps those finite who won or lost every game. Intervals are those of the likelihood's curvature, scaled by
how much the points of pairs really vary (quasi-likelihood: McCullagh and Nelder 1989, 9.2): draws and
reversed pairs vary less than coins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alphazero.evaluation.elo import ENOUGH_PAIRS, Z_95, MatchScore

# Shapes: P players, K meetings of two players.

ELO_PER_UNIT = 400 / math.log(10)
PRIOR_ELO = 1000.0  # standard deviation
ROUNDS = 200  # of Newton's method, which needs some ten
LONGEST_STEP = 2.0  # in natural units (347 Elo): far from the solution the method would jump
CLOSE_ENOUGH = 1e-9
DISPERSION = (0.2, 2.0)  # what is believed of an estimate from few surprising games


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
        slope_P, curve_PP = _likelihood(strength_P, sides_KP, games_K, points_K)
        step_P = np.linalg.solve(curve_PP, slope_P)
        strength_P += np.clip(step_P, -LONGEST_STEP, LONGEST_STEP)
        if np.abs(step_P).max() < CLOSE_ENOUGH:
            break
    _, curve_PP = _likelihood(strength_P, sides_KP, games_K, points_K)
    from_mean_PP = np.eye(num_players) - 1 / num_players
    expected_K = 1 / (1 + np.exp(-sides_KP @ strength_P))
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
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Slope [P] and negative curvature [P, P] of its logarithm, with the prior."""
    precision = (ELO_PER_UNIT / PRIOR_ELO) ** 2
    expected_K = 1 / (1 + np.exp(-sides_KP @ strength_P))
    slope_P = sides_KP.T @ (points_K - games_K * expected_K) - precision * strength_P
    weight_K = games_K * expected_K * (1 - expected_K)
    curve_PP = (sides_KP.T * weight_K) @ sides_KP + precision * np.eye(len(strength_P))
    return slope_P, curve_PP


def _dispersion(met: list[MatchScore], expected_K: npt.NDArray[np.float64], num_players: int) -> float:
    """The pairs' variance as a share of that of two coins each; 1 while there are few pairs."""
    pairs = sum(sum(score.pairs) for score in met)
    if pairs < ENOUGH_PAIRS + num_players:
        return 1.0
    squares = 0.0
    for score, expected in zip(met, expected_K, strict=True):
        for place, count in enumerate(score.pairs):
            squares += count * (place / 2 - 2 * expected) ** 2 / (2 * expected * (1 - expected))
    low, high = DISPERSION
    return float(min(high, max(low, squares / (pairs - num_players + 1))))
