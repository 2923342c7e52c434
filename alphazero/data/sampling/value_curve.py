"""The value curve of a window: from an evaluation to win, draw and loss, fitted to the results of its games.

For an evaluation of x pawns, for the side to move,

    W = 1 / (1 + exp((a - x) / b)),  L = 1 / (1 + exp((a + x) / b)),  D = 1 - W - L

the ordered logistic model, as Stockfish's WDL model has it (github.com/official-stockfish/WDL_model), with
one a and b for a whole window. A mate is certain. The model is the same for both players, so all
evaluations are counted as the first player sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alphazero.base.text import counted
from alphazero.data.sampling.window import Window
from alphazero.data.store.columns import EvaluationView

# Shapes: X evaluations of -MOST_CENTIPAWNS to MOST_CENTIPAWNS centipawns; 3 results: won, drawn, lost.
MOST_CENTIPAWNS = 2000  # evaluations beyond count as this much: there the curve has long been flat
_STEPS = 60  # of Newton's method at most
_HALVINGS = 30  # of a step that gains nothing; then the maximum is reached
_DECIMALS = 4  # of a and b: equal on machines whose exponentials differ in the last bit
_PAWNS = np.arange(-MOST_CENTIPAWNS, MOST_CENTIPAWNS + 1) / 100
_LEAST, _MOST = 0.01, 100.0  # pawns: a curve outside is no curve of evaluations


@dataclass(frozen=True)
class ValueCurve:
    """a: the evaluation with which every second game is won. b: how steep it is there. In pawns."""

    a: float
    b: float


def fit_curve(counts_X3: npt.NDArray[np.int64]) -> ValueCurve | None:
    """The curve of maximum likelihood: positions counted by their evaluation and their game's result.

    None where there is no such curve with the better evaluation for the better result. Equal counts give
    equal numbers.
    """
    counts = counts_X3 / max(1, counts_X3.sum())
    # In slope = 1 / b and offset = a / b the likelihood is concave (Pratt 1981).
    at = np.array([1.0, 1.0])
    value, gradient, hessian = _likelihood(counts, at)
    for _ in range(_STEPS):
        if not np.all(np.isfinite(hessian)) or abs(np.linalg.det(hessian)) < 1e-300:
            return None
        step = np.linalg.solve(hessian, -gradient)
        for _ in range(_HALVINGS):
            tried = at + step
            if tried[1] > 0:
                there = _likelihood(counts, tried)
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
    counts: npt.NDArray[np.float64], at: npt.NDArray[np.float64]
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
        argument = sign_slope * slope * _PAWNS + sign_offset * offset
        logistic = 1 / (1 + np.exp(-argument))
        value += float((weight * -np.logaddexp(0, -argument)).sum())
        direction = np.stack([sign_slope * _PAWNS, np.full(len(_PAWNS), float(sign_offset))])
        gradient += (direction * (weight * (1 - logistic))).sum(1)
        hessian -= (direction * (weight * logistic * (1 - logistic))) @ direction.T
    grown = np.expm1(2 * offset)
    num_drawn = float(drawn.sum())
    value += num_drawn * float(np.log(-np.expm1(-2 * offset)))
    gradient[1] += num_drawn * 2 / grown
    hessian[1, 1] -= num_drawn * 4 * (grown + 1) / grown**2
    return value, gradient, hessian


# Shapes: N games, P plies of them; X evaluations and 3 results as value_curve.py has them.

# Fitted to 5,275 games of TCEC: engines, hours a game.
STANDARD_CURVE = ValueCurve(1.3255, 0.68)
FEWEST_GAMES = 100  # with a result and an evaluation; the plies of a game are no independent witnesses
FEWEST_OF_A_KIND = 10  # drawn and decided ones among them
ENGINE_SOURCE = 2  # of eval_source: the engine that moved, of the position before its move
_GAMES_AT_ONCE = 1024
_MOST_BLOCKS = 200  # of so many games, spread over the window: a month of Lichess must not be read for this


@dataclass(frozen=True)
class WindowCurve:
    """How a window's evaluations become values.

    share: of its positions, those with an evaluation that counts. games, drawn: with evaluations. fitted: to
    them, else it is the standard curve.
    """

    curve: ValueCurve
    fitted: bool
    share: float
    games: int
    drawn: int

    def __str__(self) -> str:
        numbers = f"a {self.curve.a:.4f}, b {self.curve.b:.4f} pawns"
        kind = "fitted" if self.fitted else "standard"
        return (
            f"in {100 * self.share:.1f} % of the positions; win, draw and loss by the {kind} curve {numbers}"
            f" ({counted(self.games, 'game')} with evaluations, {self.drawn} drawn)"
        )


@dataclass
class _Counts:
    counts_X3: npt.NDArray[np.int64]
    games: int = 0
    drawn: int = 0
    positions: int = 0
    evaluated: int = 0


def curve_of(window: Window) -> WindowCurve | None:
    """The curve of a window's games; None where no comment of them has an evaluation.

    Equal games give equal numbers. Of a window above 204,800 games, so many are looked at. Raises DataError.
    """
    total = _Counts(np.zeros((2 * MOST_CENTIPAWNS + 1, 3), np.int64))
    for index, games in _blocks(window):
        view = window.shards[index]
        view.check_size()
        plies = np.diff(view.moves_offset)[games]
        total.positions += int(plies.sum())
        if view.evaluations is not None:
            _count(total, view.evaluations, games, plies, view.result[games])
    if total.evaluated == 0:
        return None
    enough = total.games >= FEWEST_GAMES and total.drawn >= FEWEST_OF_A_KIND
    enough = enough and total.games - total.drawn >= FEWEST_OF_A_KIND
    fitted = fit_curve(total.counts_X3) if enough else None
    return WindowCurve(
        curve=fitted or STANDARD_CURVE,
        fitted=fitted is not None,
        share=total.evaluated / total.positions,
        games=total.games,
        drawn=total.drawn,
    )


def _blocks(window: Window) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
    """Shards and rows of games in them, which lie side by side."""
    starts = range(0, window.num_games, _GAMES_AT_ONCE)
    for start in starts[:: max(1, -(-len(starts) // _MOST_BLOCKS))]:
        shard = window.shard[start : start + _GAMES_AT_ONCE]
        game = window.game[start : start + _GAMES_AT_ONCE]
        for index in np.unique(shard):
            yield int(index), game[shard == index]


def _count(
    total: _Counts,
    evaluations: EvaluationView,
    games_N: npt.NDArray[np.int32],
    plies_N: npt.NDArray[np.int32],
    result_N: npt.NDArray[np.int8],
) -> None:
    row_P = np.repeat(np.arange(len(games_N)), plies_N)
    first = np.concatenate([[0], np.cumsum(plies_N)])
    ply_P = np.arange(len(row_P)) - first[row_P]
    has_cp, centipawns = evaluations.cp.entries(games_N[row_P], ply_P)
    has_mate, _ = evaluations.mate.entries(games_N[row_P], ply_P)
    has_source, source = evaluations.source.entries(games_N[row_P], ply_P)
    has_any = has_cp | has_mate
    before = np.concatenate([[False], has_any[:-1]]) & (ply_P > 0)
    total.evaluated += int(np.count_nonzero(before | (has_any & has_source & (source == ENGINE_SOURCE))))
    witnesses = np.unique(row_P[has_cp])
    total.games += len(witnesses)
    total.drawn += int(np.count_nonzero(result_N[witnesses] == 0))
    cell = np.clip(centipawns[has_cp].astype(np.int64), -MOST_CENTIPAWNS, MOST_CENTIPAWNS) + MOST_CENTIPAWNS
    outcome = 1 - result_N[row_P[has_cp]].astype(np.int64)
    total.counts_X3 += np.bincount(3 * cell + outcome, minlength=total.counts_X3.size).reshape(-1, 3)
