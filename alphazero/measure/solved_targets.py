"""What self-play in Connect Four leaves to train on, beside the exact truth: how noisy the targets are.

Positions are drawn from stored games and solved. Nothing of this enters training.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.data.store.games import StoredGame, games_of
from alphazero.data.store.store import GameStore
from alphazero.measure.exact_truth import COLUMNS

# Plies of the positions, by first ply; earlier ones take seconds each to solve.
BANDS = tuple(range(first, first + 4) for first in range(8, 28, 4))
LOWER_TEMPERATURES = (0.7, 0.5, 0.35, 0.25)

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SearchedPosition:
    """A position of a stored game. Values are from -1 to 1 for the side to move.

    moves: columns from 0; result: of the game; search_value: of the search's root; network_value: before the
    search, NaN where it is not known; policy: f64 [7], shares of the columns; played: a column.
    """

    moves: tuple[int, ...]
    result: int
    search_value: float
    network_value: float
    policy: Doubles
    played: int


@dataclass(frozen=True)
class SolvedTarget:
    """A position with its exact outcome for the side to move, and which columns keep it: bool [7].

    can_err: some legal move does not keep it.
    """

    position: SearchedPosition
    outcome: int
    keeps: npt.NDArray[np.bool_]
    can_err: bool


@dataclass(frozen=True)
class TargetFigures:
    """The targets of positions between two plies, beside the truth.

    Of all positions: drawn, the share that best play draws; wrong_results, the share whose game ended other
    than best play ends; value_errors, by target, the mean squared error against the exact outcome.
    Of the with_errors positions in which a move can err: policy_on_errors, the mean share of the policy that
    lies on such moves, and so how often a move drawn from it is one; likeliest_errs and played_errs, how
    often the policy's likeliest move and the move played are one; drawn_errs, how often a move drawn at a
    lower temperature would be one, by temperature. NaN where there is no position, or no value.
    """

    first_ply: int
    last_ply: int
    positions: int
    drawn: float
    wrong_results: float
    value_errors: dict[str, float]
    with_errors: int
    policy_on_errors: float
    likeliest_errs: float
    played_errs: float
    drawn_errs: dict[float, float]


def draw_positions(store: GameStore, newest: int, count: int, seed: int) -> list[list[SearchedPosition]]:
    """Up to `count` positions for each of BANDS, at random from the newest games, at most one a game.

    Only positions that are trained on. Raises DataError where the games are not Connect Four's, or have no
    such position.
    """
    if store.manifest.game != "connect4":
        raise DataError(f"{store.path}: holds {store.manifest.game}; expected games of connect4")
    games = [
        game
        for game in games_of(store, max(0, store.num_games - newest))
        if game.is_searched and "result" in game.values
    ]
    generator = random.Random(seed)
    generator.shuffle(games)
    found: list[list[SearchedPosition]] = [[] for _ in BANDS]
    for game in games:
        trained_on = plies_trained_on(game)
        reached = [
            (len(found[number]), number, plies)
            for number, band in enumerate(BANDS)
            if (plies := [ply for ply in trained_on if ply in band]) and len(found[number]) < count
        ]
        if reached:
            _, number, plies = min(reached)
            found[number].append(searched_position(game, generator.choice(plies)))
    if not any(found):
        raise DataError(
            f"{store.path}: no search of a position with {BANDS[0][0]} to {BANDS[-1][-1]} stones; "
            "expected games of self-play"
        )
    return found


def plies_trained_on(game: StoredGame) -> list[int]:
    """Those with a full search that left a policy."""
    shares = np.cumsum(game.lists["policy_prob"], dtype=np.int64)
    share_of_ply = np.diff(np.concatenate([[0], shares])[game.lists["policy_offsets"]])
    is_full = (game.lists["flags"] & 1) > 0
    plies: list[int] = np.flatnonzero(is_full & (share_of_ply > 0)).tolist()
    return plies


def searched_position(game: StoredGame, ply: int) -> SearchedPosition:
    """The game's position before move number `ply`, from 0."""
    lists = game.lists
    moves = tuple(int(move) for move in lists["moves"])
    begin, end = (int(lists["policy_offsets"][place]) for place in (ply, ply + 1))
    policy = np.zeros(COLUMNS)
    policy[lists["policy_move"][begin:end]] = lists["policy_prob"][begin:end]
    network_value = lists["orig_q"][ply] if "orig_q" in lists else np.nan
    result = int(game.values["result"])
    return SearchedPosition(
        moves[:ply],
        result if ply % 2 == 0 else -result,
        float(lists["root_q"][ply]),
        np.nan if network_value is None else float(network_value),
        policy / policy.sum(),
        moves[ply],
    )


def solved_target(solver: _core.Connect4Solver, position: SearchedPosition) -> SolvedTarget:
    """Its truth."""
    line = _core.Connect4Line()
    for move in position.moves:
        line.push(move)
    outcomes = np.array(solver.move_outcomes(line))
    legal = outcomes != solver.ILLEGAL
    outcome = int(outcomes[legal].max())
    keeps = outcomes == outcome
    return SolvedTarget(position, outcome, keeps, bool((legal & ~keeps).any()))


def figures_of(band: range, targets: Sequence[SolvedTarget]) -> TargetFigures:
    """The targets beside the truth."""
    outcomes = np.array([target.outcome for target in targets], float)
    results = np.array([target.position.result for target in targets], float)
    values = {
        "result": results,
        "search": np.array([target.position.search_value for target in targets]),
        "network": np.array([target.position.network_value for target in targets]),
    }
    values["half"] = (values["result"] + values["search"]) / 2
    risky = [target for target in targets if target.can_err]
    return TargetFigures(
        first_ply=band[0],
        last_ply=band[-1],
        positions=len(targets),
        drawn=mean(outcomes == 0),
        wrong_results=mean(results != outcomes),
        value_errors={name: mean((value - outcomes) ** 2) for name, value in values.items()},
        with_errors=len(risky),
        policy_on_errors=mean([share_on_errors(target, 1.0) for target in risky]),
        likeliest_errs=mean([not target.keeps[target.position.policy.argmax()] for target in risky]),
        played_errs=mean([not target.keeps[target.position.played] for target in risky]),
        drawn_errs={
            temperature: mean([share_on_errors(target, temperature) for target in risky])
            for temperature in LOWER_TEMPERATURES
        },
    )


def share_on_errors(target: SolvedTarget, temperature: float) -> float:
    """Of the moves that are drawn from the policy at this temperature, the share that errs."""
    shares = (target.position.policy / target.position.policy.max()) ** (1 / temperature)
    return float(shares[~target.keeps].sum() / shares.sum())


def mean(values: npt.ArrayLike) -> float:
    """NaN of none."""
    entries = np.asarray(values, float)
    return float(entries.mean()) if entries.size else float("nan")
