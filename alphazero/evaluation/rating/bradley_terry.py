"""Ratings of all players of a tournament from their games: Bradley-Terry, a draw being half a win.

The expected points of i against j are 1 / (1 + 10^((r_j - r_i) / 400)); the ratings are those of maximum
likelihood (Bradley and Terry 1952; Hunter 2004 for that they are unique), with a mean of 0. Intervals come
from solving the same equations for many draws of what the points per game may truly be (MatchScore), so that
reversed pairs narrow them as they should and no result makes them infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alphazero.evaluation.elo import MatchScore

# Shapes: D draws, P players, K meetings of two players.

DRAWS = 2000
ROUNDS = 60  # of Newton's method, which needs some ten
LONGEST_STEP = 2.0  # in natural units (347 Elo): far from the solution the method would jump
CLOSE_ENOUGH = 1e-9
RIDGE = 1e-9  # for players without a game
ELO_PER_UNIT = 400 / math.log(10)


@dataclass(frozen=True)
class Rating:
    """Elo above the mean of the field, with the ends of its 95 % interval."""

    elo: float
    low: float
    high: float


def ratings(num_players: int, scores: Mapping[tuple[int, int], MatchScore]) -> list[Rating]:
    """scores: of the first of each two players who met."""
    met = [pair for pair, score in scores.items() if score.games]
    if not met:
        return [Rating(0.0, 0.0, 0.0)] * num_players
    generator = np.random.default_rng(0)  # the same games, the same figures
    shares_DK = np.stack([scores[pair].possible_shares(DRAWS, generator) for pair in met], axis=1)
    games_K = np.array([scores[pair].games for pair in met], np.float64)
    elo_DP = ELO_PER_UNIT * _solve(np.array(met), games_K, shares_DK, num_players)
    low_P, middle_P, high_P = np.quantile(elo_DP, (0.025, 0.5, 0.975), axis=0)
    return [
        Rating(float(middle), float(low), float(high))
        for low, middle, high in zip(low_P, middle_P, high_P, strict=True)
    ]


def _solve(
    met_K2: npt.NDArray[np.int64],
    games_K: npt.NDArray[np.float64],
    shares_DK: npt.NDArray[np.float64],
    num_players: int,
) -> npt.NDArray[np.float64]:
    """Strengths [D, P] in natural units at which the expected points are those of each draw."""
    sides_KP = np.eye(num_players)[met_K2[:, 0]] - np.eye(num_players)[met_K2[:, 1]]
    strength_DP = np.zeros((len(shares_DK), num_players))
    # The equations know differences alone: the ones fix the mean at 0.
    fixed_PP = np.ones((num_players, num_players)) / num_players + RIDGE * np.eye(num_players)
    for _ in range(ROUNDS):
        expected_DK = 1 / (1 + np.exp(-strength_DP @ sides_KP.T))
        slope_DP = (games_K * (shares_DK - expected_DK)) @ sides_KP
        weight_DK = games_K * expected_DK * (1 - expected_DK)
        curve_DPP = np.einsum("dk,kp,kq->dpq", weight_DK, sides_KP, sides_KP) + fixed_PP
        step_DP = np.linalg.solve(curve_DPP, slope_DP[..., None])[..., 0]
        strength_DP += np.clip(step_DP, -LONGEST_STEP, LONGEST_STEP)
        if np.abs(step_DP).max() < CLOSE_ENOUGH:
            break
    strength_DP -= strength_DP.mean(axis=1, keepdims=True)
    return strength_DP
