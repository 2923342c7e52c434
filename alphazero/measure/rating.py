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
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import CheckpointError
from alphazero.base.files import cut_unfinished_line
from alphazero.base.section import read_toml
from alphazero.measure.elo import ENOUGH_PAIRS, Z_95, MatchScore
from alphazero.network.weights.open_network import weights_of_checkpoint
from alphazero.network.weights.weights import best_weights_file_name, write_weights
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
        for place, count in enumerate(score.pairs):
            squares += count * (place / 2 - 2 * expected) ** 2 / (2 * expected * (1 - expected))
    low, high = DISPERSION
    return float(min(high, max(low, squares / (pairs - num_players + 1))))


PAIRS_AT_ONCE = 8  # of games between two looks at the estimate
BEYOND = 800.0  # Elo below the lowest and above the highest opponent, where estimates end
STEP = 1.0  # Elo
TAIL = 0.025


@dataclass(frozen=True)
class Rung:
    """An opponent of the ladder, its rating on the ladder's scale, and how it plays.

    kind: random, weights (then file, and nodes), stockfish or mcts (then nodes). random_share: of its moves.
    path: of its network or program on this machine.
    """

    name: str
    kind: str
    rating: float
    nodes: int = 0
    file: str = ""
    random_share: float = 0.0
    path: str = ""


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
        wins, draws, losses = (
            sum(getattr(score, name) for _, score in self.met) for name in ("wins", "draws", "losses")
        )
        if draws or (wins and losses):
            return ""
        return "above" if wins else "below"


def estimate(met: Sequence[tuple[Rung, MatchScore]], ladder: Sequence[Rung]) -> LadderRating:
    """Median and 95 % quantiles of the rating's posterior (Bradley-Terry), its prior uniform over the ladder.

    A draw counts as half a win and half a loss: the interval is wider than it need be, never narrower.
    """
    ratings = [rung.rating for rung in ladder]
    grid = np.arange(min(ratings) - BEYOND, max(ratings) + BEYOND + STEP, STEP)
    likelihood = np.zeros(len(grid))
    for rung, score in met:
        points = score.wins + 0.5 * score.draws
        distance = (grid - rung.rating) * np.log(10) / 400
        likelihood -= points * np.logaddexp(0, -distance)
        likelihood -= (score.games - points) * np.logaddexp(0, distance)
    weight = np.exp(likelihood - likelihood.max())
    reached = np.cumsum(weight) / weight.sum()
    low, middle, high = (float(grid[np.searchsorted(reached, at)]) for at in (TAIL, 0.5, 1 - TAIL))
    return LadderRating(middle, low, high, tuple(met))


def rate(
    ladder: Sequence[Rung],
    play: Callable[[int, int, int], MatchScore],
    *,
    most_games: int,
    width: float,
    start: float | None = None,
    report: Callable[[LadderRating], None] = lambda found: None,
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
        found = estimate(met, ladder)
        report(found)
        if found.high - found.low <= width or played + 2 > most_games:
            return found
        here = found.elo


PACKAGE = Path(__file__).resolve().parents[1]
LADDER = PACKAGE / "assets" / "ladder.toml"
# A directory with the networks that the ladder names.
DIRECTORY_VARIABLE = "ALPHAZERO_LADDER"
# Beside a checkout of this project.
REFERENCE = PACKAGE.parents[1] / "shared" / "data" / "lc0"
STOCKFISH = "stockfish"
# Where Debian keeps programs that are games: not on every user's PATH.
GAMES = "/usr/games"


def read_ladder() -> list[Rung]:
    """All rungs, from the lowest."""
    rungs: list[dict[str, Any]] = read_toml(LADDER).table["rung"]
    return sorted((Rung(**rung) for rung in rungs), key=lambda rung: rung.rating)


def find_rungs(rungs: Sequence[Rung], directory: Path | None) -> tuple[list[Rung], list[str]]:
    """The rungs that this machine has, with their paths, and a line for each file or program missing.

    directory: of networks, as the user gave it; else the variable, else the reference data.
    """
    given = os.environ.get(DIRECTORY_VARIABLE)
    networks = directory or (Path(given) if given else REFERENCE)
    stockfish = shutil.which(STOCKFISH) or shutil.which(STOCKFISH, path=GAMES)
    found, missing = [], []
    for rung in rungs:
        path = {"random": "", "stockfish": stockfish, "weights": str(networks / rung.file)}[rung.kind]
        if path is not None and (rung.kind != "weights" or Path(path).is_file()):
            found.append(replace(rung, path=path))
        else:
            missing.append(rung)
    lines = []
    if files := sorted({rung.file for rung in missing if rung.kind == "weights"}):
        lines.append(f"the ladder lacks {', '.join(files)}: not found in {networks} (--ladder DIR)")
    if any(rung.kind == "stockfish" for rung in missing):
        lines.append("the ladder lacks Stockfish: no program `stockfish` on PATH")
    return found, lines


RATINGS = "ratings.jsonl"
METRIC = "elo"


def keep_rating(run: Path, rating: Mapping[str, Any]) -> None:
    """Append the rating of a checkpoint: `step`, `elo`, how it played (`limit`, `rules`), anything else."""
    file = run / RATINGS
    cut_unfinished_line(file)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(dict(rating)) + "\n")


def mark_best_rated(run: Path) -> tuple[Path, float] | None:
    """Mark the strongest checkpoint best-elo and write its weights as a file; returns it and its Elo.

    The newest rating of a checkpoint counts, if it was made at the limit, by the rules and on the ladder of
    the newest of all: others are not comparable. None where no complete checkpoint has a rating.
    """
    ratings = list(_ratings_in(run / RATINGS))
    played = [(each["limit"], each["rules"], each["ladder"]) for each in ratings]
    of_steps = {
        each["step"]: each["elo"] for each, how in zip(ratings, played, strict=True) if how == played[-1]
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
        files.point_at(directory, METRIC, best, elo)
        weights = weights_of_checkpoint(best)
        write_weights(run / best_weights_file_name(weights.config, METRIC), weights)
        return best, elo
    return None


def _ratings_in(file: Path) -> Iterator[dict[str, Any]]:
    """The ratings of a file, without damaged lines."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            rating = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(rating, dict) and all(_is_finite(rating.get(name)) for name in ("step", METRIC)):
            yield {"limit": None, "rules": "selfplay", "ladder": "", **rating}


def _is_finite(value: object) -> bool:
    return files.is_number(value) and math.isfinite(value)
