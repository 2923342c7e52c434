"""The value curve of a window: its games' evaluations counted by their results, and the curve fitted to them.

The model is the same for both players, so all evaluations are counted as the first player sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alphazero.data.sampling.value_curve import MOST_CENTIPAWNS, ValueCurve, fit_curve
from alphazero.data.sampling.window import Window
from alphazero.data.store.evaluations import EvaluationView
from alphazero.text import counted

# Shapes: N games, P plies of them; X evaluations and 3 results as value_curve.py has them.

# What `python -m benchmarks.value_curve` finds for 5,275 games of TCEC: engines, hours a game.
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
        share = f"in {100 * self.share:.1f} % of the positions"
        games = counted(self.games, "game")
        if self.fitted:
            return f"{share}; win, draw and loss by the curve {numbers}, fitted to {games}"
        return (
            f"{share}; win, draw and loss by the standard curve {numbers}: {games} with evaluations, "
            f"{self.drawn} drawn, do not give one of their own (at least {FEWEST_GAMES}, "
            f"{FEWEST_OF_A_KIND} drawn and {FEWEST_OF_A_KIND} decided, and better results with better "
            "evaluations)"
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
