"""How well evaluations in comments foretell results: the fitted curve, whose opinion is best, reliability.

All is counted for White; the model is the same for both players.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from alphazero.data.open import open_or_import
from alphazero.data.sampling.value_curve import ENGINE_SOURCE, ValueCurve, curve_of
from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView
from alphazero.settings.flags import Parser
from benchmarks.pgn_import import write_random_games

# Shapes: P positions of which both engines have an opinion; 3 results: won, drawn, lost.
EDGES = (-20.0, -5.0, -2.0, -1.0, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)


def run(arguments: list[str]) -> dict[str, object]:
    """Count as the flags say; returns what `alphazero bench value_curve --json` prints."""
    parser = Parser(prog="alphazero bench value_curve", description=__doc__)
    parser.add_argument("data", nargs="*", type=Path, help="stores or PGN; without it, random games")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or [write_random_games(Path(folder) / "random.pgn")]
        window = Window.of_stores(open_or_import(data, Path(folder)))
        found = curve_of(window)
        figures: dict[str, object] = {"plies": sum(view.num_plies for view in window.shards)}
        if found is None:
            return figures
        parts = [_opinions(view) for view in window.shards if view.evaluations is not None]
        own_P, before_P, outcome_P = (np.concatenate(column) for column in zip(*parts, strict=True))
    figures |= {"share": found.share, "fitted": found.fitted, "a": found.curve.a, "b": found.curve.b}
    return figures | _compare(found.curve, own_P, before_P, outcome_P)


def _opinions(
    view: ShardView,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Pawns by the engine that moves, by the one that moved before, and the result (0 White won, 2 lost)."""
    assert view.evaluations is not None
    plies = np.diff(view.moves_offset)
    game = np.repeat(np.arange(view.num_games), plies)
    ply = np.arange(len(game)) - view.moves_offset[:-1][game]
    known, centipawns = view.evaluations.cp.entries(game, ply)
    has_source, source = view.evaluations.source.entries(game, ply)
    own = known & has_source & (source == ENGINE_SOURCE) & view.result_valid[game]
    both = np.flatnonzero(own & (ply > 0) & np.concatenate([[False], known[:-1]]))
    outcome = 1 - view.result[game[both]].astype(np.int64)
    return centipawns[both] / 100, centipawns[both - 1] / 100, outcome


def _compare(
    curve: ValueCurve,
    own_P: npt.NDArray[np.float64],
    before_P: npt.NDArray[np.float64],
    outcome_P: npt.NDArray[np.int64],
) -> dict[str, object]:
    rows = np.arange(len(outcome_P))
    own_P3, before_P3 = (curve.wdl(np.clip(pawns, -20, 20)) for pawns in (own_P, before_P))

    def likelihood(wdl_P3: npt.NDArray[np.float64]) -> float:
        return float(np.log(np.maximum(wdl_P3[rows, outcome_P], 1e-12)).mean())

    reliability = []
    for low, high in itertools.pairwise(EDGES):
        inside = (own_P >= low) & (own_P < high)
        if not inside.any():
            continue
        mean = (own_P3[inside] + before_P3[inside]) / 2
        found = np.bincount(outcome_P[inside], minlength=3) / inside.sum()
        reliability.append({
            "pawns": [low, high],
            "positions": int(inside.sum()),
            "told": mean.mean(0).round(3).tolist(),
            "found": found.round(3).tolist(),
        })  # fmt: skip
    return {
        "positions_of_two_opinions": len(rows),
        "log_likelihood_own": likelihood(own_P3),
        "log_likelihood_before": likelihood(before_P3),
        "log_likelihood_mean": likelihood((own_P3 + before_P3) / 2),
        "reliability": reliability,
    }
