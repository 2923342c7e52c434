"""From an evaluation to win, draw and loss: a curve that is fitted to the results of the same games.

For an evaluation of x pawns, for the side to move,

    W = 1 / (1 + exp((a - x) / b)),  L = 1 / (1 + exp((a + x) / b)),  D = 1 - W - L

the ordered logistic model, as Stockfish's WDL model has it (github.com/official-stockfish/WDL_model), with
one a and b for a whole window. A mate is certain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Shapes: X evaluations of -MOST_CENTIPAWNS to MOST_CENTIPAWNS centipawns; 3 results: won, drawn, lost.
MOST_CENTIPAWNS = 2000  # evaluations beyond count as this much: there the curve has long been flat
_STEPS = 60  # of Newton's method at most
_HALVINGS = 30  # of a step that brings nothing; then the maximum is reached
_DECIMALS = 4  # of a and b: equal on machines whose exponentials differ in the last bit
_PAWNS = np.arange(-MOST_CENTIPAWNS, MOST_CENTIPAWNS + 1) / 100
_LEAST, _MOST = 0.01, 100.0  # pawns: a curve outside is no curve of evaluations


@dataclass(frozen=True)
class ValueCurve:
    """a: the evaluation with which every second game is won. b: how steep it is there. In pawns."""

    a: float
    b: float

    def wdl(self, pawns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """f64 [..., 3] of evaluations for the side to move."""
        won = 1 / (1 + np.exp((self.a - pawns) / self.b))
        lost = 1 / (1 + np.exp((self.a + pawns) / self.b))
        return np.stack([won, np.maximum(0, 1 - won - lost), lost], -1)


def log_likelihood(curve: ValueCurve, counts_X3: npt.NDArray[np.int64]) -> float:
    """Of the results, per position, in nats."""
    shares = counts_X3 / max(1, counts_X3.sum())
    return _likelihood(shares, _PAWNS, np.array([1 / curve.b, curve.a / curve.b]))[0]


def fit_curve(counts_X3: npt.NDArray[np.int64]) -> ValueCurve | None:
    """The curve of maximum likelihood: positions counted by their evaluation and their game's result.

    None where there is no such curve with the better evaluation for the better result. Equal counts give
    equal numbers.
    """
    counts = counts_X3 / max(1, counts_X3.sum())
    # In slope = 1 / b and offset = a / b the likelihood is concave (Pratt 1981).
    at = np.array([1.0, 1.0])
    value, gradient, hessian = _likelihood(counts, _PAWNS, at)
    for _ in range(_STEPS):
        if not np.all(np.isfinite(hessian)) or abs(np.linalg.det(hessian)) < 1e-300:
            return None
        step = np.linalg.solve(hessian, -gradient)
        for _ in range(_HALVINGS):
            tried = at + step
            if tried[1] > 0:
                there = _likelihood(counts, _PAWNS, tried)
                if there[0] > value:
                    at, (value, gradient, hessian) = tried, there
                    break
            step = step / 2
        else:
            break
    slope, offset = at
    if slope <= 0:
        return None
    curve = ValueCurve(round(float(offset / slope), _DECIMALS), round(float(1 / slope), _DECIMALS))
    return curve if _LEAST <= curve.b <= _MOST and _LEAST <= curve.a <= _MOST else None


def _likelihood(
    counts: npt.NDArray[np.float64], pawns: npt.NDArray[np.float64], at: npt.NDArray[np.float64]
) -> tuple[float, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Its logarithm, gradient [2] and Hessian [2, 2] at (slope, offset).

    D = 1 - W - L is s(p + q) s(q - p) (1 - exp(-2 q)) with p = slope x, q = offset and s the logistic
    function: all terms are logarithms of s but the last, which depends on the offset alone.
    """
    slope, offset = at
    value, gradient, hessian = 0.0, np.zeros(2), np.zeros((2, 2))
    won, drawn, lost = counts.T
    for weight, sign_slope, sign_offset in (
        (won, 1, -1),
        (lost, -1, -1),
        (drawn, 1, 1),
        (drawn, -1, 1),
    ):
        argument = sign_slope * slope * pawns + sign_offset * offset
        logistic = 1 / (1 + np.exp(-argument))
        value += float((weight * -np.logaddexp(0, -argument)).sum())
        direction = np.stack([sign_slope * pawns, np.full(len(pawns), float(sign_offset))])
        gradient += (direction * (weight * (1 - logistic))).sum(1)
        hessian -= (direction * (weight * logistic * (1 - logistic))) @ direction.T
    grown = np.expm1(2 * offset)
    num_drawn = float(drawn.sum())
    value += num_drawn * float(np.log(-np.expm1(-2 * offset)))
    gradient[1] += num_drawn * 2 / grown
    hessian[1, 1] -= num_drawn * 4 * (grown + 1) / grown**2
    return value, gradient, hessian
