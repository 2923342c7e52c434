"""How far the targets that Connect Four's self-play left to train on are from the exact truth.

python -m tools.connect4_targets runs/connect4/games --count 500 --seed 1

Positions are drawn from stored games and solved.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

import alphazero._core as _core
from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.base.log import error_line
from alphazero.base.text import counted, table
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.store import GameStore
from alphazero.measure.truth.connect4 import COLUMNS, solve_in_threads

# Plies of the positions, by first ply; earlier ones take seconds each to solve.
BANDS = tuple(range(first, first + 4) for first in range(8, 28, 4))
LOWER_TEMPERATURES = (0.7, 0.5, 0.35, 0.25)


@dataclass(frozen=True)
class SearchedPosition:
    """A position of a stored game. Values are from -1 to 1 for the side to move.

    moves: columns from 0; result: of the game; search_value: of the search's root, best_value: of its best
    move; network_value: before the search, NaN where it is not known; policy: f64 [7], shares of the columns;
    played: a column; is_spoilt: from this ply on, the game left its searches' likeliest moves at least once.
    """

    moves: tuple[int, ...]
    result: int
    search_value: float
    best_value: float
    network_value: float
    policy: npt.NDArray[np.float64]
    played: int
    is_spoilt: bool


@dataclass(frozen=True)
class SolvedTarget:
    """A position with its exact outcome for the side to move, and the columns that keep it, bool [7].

    can_err: some legal move does not keep it.
    """

    position: SearchedPosition
    outcome: int
    keeps: npt.NDArray[np.bool_]
    can_err: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Draw, solve, print the figures of each band of plies; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("--count", type=int, default=100, help="positions of each band of four plies")
    parser.add_argument("--newest", type=int, default=5000, help="draw from the newest games (default: 5000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table-mib", type=int, default=512, help="memory of the solvers")
    parser.add_argument("--num-threads", type=int, default=1)
    args = parser.parse_args(argv)
    try:
        store = GameStore.open(args.store)
        drawn = draw_positions(store, args.newest, args.count, args.seed)
    except AlphaZeroError as error:
        print(error_line(str(error)), file=sys.stderr)
        return error.exit_code
    positions = [position for of_band in drawn for position in of_band]
    solved = solve_in_threads(solved_target, positions, args.table_mib, args.num_threads)
    targets = iter(list(tqdm(solved, total=len(positions), unit="position", leave=False, disable=None)))
    rows = {
        f"{band[0]}-{band[-1]}": figures_of([next(targets) for _ in of_band])
        for band, of_band in zip(BANDS, drawn, strict=True)
        if of_band
    }
    games = counted(min(args.newest, store.num_games), "game")
    print(f"{args.store}: {counted(len(positions), 'position')} of the newest {games}\n")
    head = ("plies", *next(iter(rows.values())))
    lines = [head, *((plies, *figures.values()) for plies, figures in rows.items())]
    # A column for each band: there are more figures than bands.
    print("\n".join(table(list(zip(*lines, strict=True)), "l" + "r" * len(rows))))
    return 0


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


def plies_trained_on(game: GameRow) -> list[int]:
    """Plies with a full search that left a policy."""
    shares = np.cumsum(game.lists["policy_prob"], dtype=np.int64)
    share_of_ply = np.diff(np.concatenate([[0], shares])[game.lists["policy_offsets"]])
    is_full = (game.lists["flags"] & 1) > 0
    plies: list[int] = np.flatnonzero(is_full & (share_of_ply > 0)).tolist()
    return plies


def searched_position(game: GameRow, ply: int) -> SearchedPosition:
    """The game's position before move number `ply`, from 0."""
    lists = game.lists
    moves = tuple(int(move) for move in lists["moves"])
    policy = searched_policy(game, ply)
    network_value = lists["orig_q"][ply] if "orig_q" in lists else np.nan
    result = int(game.values["result"])
    return SearchedPosition(
        moves[:ply],
        result if ply % 2 == 0 else -result,
        float(lists["root_q"][ply]),
        float(lists["best_q"][ply]),
        np.nan if network_value is None else float(network_value),
        policy / policy.sum(),
        moves[ply],
        any(
            searched_policy(game, later)[move] < searched_policy(game, later).max()
            for later, move in enumerate(moves[ply:], start=ply)
        ),
    )


def searched_policy(game: GameRow, ply: int) -> npt.NDArray[np.float64]:
    """The shares of the columns [7], not scaled; zeros where nothing was searched."""
    begin, end = (int(game.lists["policy_offsets"][place]) for place in (ply, ply + 1))
    policy = np.zeros(COLUMNS)
    policy[game.lists["policy_move"][begin:end]] = game.lists["policy_prob"][begin:end]
    return policy


def solved_target(solver: _core.Connect4Solver, position: SearchedPosition) -> SolvedTarget:
    """The position with its exact outcome."""
    line = _core.Connect4Line()
    for move in position.moves:
        line.push(move)
    outcomes = np.array(solver.move_outcomes(line))
    legal = outcomes != solver.ILLEGAL
    outcome = int(outcomes[legal].max())
    keeps = outcomes == outcome
    return SolvedTarget(position, outcome, keeps, bool((legal & ~keeps).any()))


def figures_of(targets: Sequence[SolvedTarget]) -> dict[str, str]:
    """The figures by name: errors of values, then of policies where a move can err."""
    outcomes = np.array([target.outcome for target in targets], float)
    results = np.array([target.position.result for target in targets], float)
    searches = np.array([target.position.search_value for target in targets])
    best = np.array([target.position.best_value for target in targets])
    networks = np.array([target.position.network_value for target in targets])
    spoilt = np.array([target.position.is_spoilt for target in targets])
    risky = [target for target in targets if target.can_err]
    return {
        "positions": str(len(targets)),
        "drawn": share(outcomes == 0),
        "wrong results": share(results != outcomes),
        "mse of result": number((results - outcomes) ** 2),
        "mse of half and half": number(((results + searches) / 2 - outcomes) ** 2),
        "mse of search": number((searches - outcomes) ** 2),
        "mse of best move": number((best - outcomes) ** 2),
        "mse of network": number((networks - outcomes) ** 2),
        "spoilt": share(spoilt),
        "mse of result, not spoilt": number((results - outcomes)[~spoilt] ** 2),
        "mse of result, spoilt": number((results - outcomes)[spoilt] ** 2),
        "mse of search, spoilt": number((searches - outcomes)[spoilt] ** 2),
        "with errors": str(len(risky)),
        "policy on errors": share([share_on_errors(target, 1.0) for target in risky]),
        "likeliest move errs": share([not target.keeps[target.position.policy.argmax()] for target in risky]),
        "played move errs": share([not target.keeps[target.position.played] for target in risky]),
        **{
            f"policy on errors at {temperature:g}": share(
                [share_on_errors(target, temperature) for target in risky]
            )
            for temperature in LOWER_TEMPERATURES
        },
    }


def share_on_errors(target: SolvedTarget, temperature: float) -> float:
    """The share of moves drawn from the policy at this temperature that are errors."""
    shares = (target.position.policy / target.position.policy.max()) ** (1 / temperature)
    return float(shares[~target.keeps].sum() / shares.sum())


def share(values: npt.ArrayLike) -> str:
    """The mean in per cent; '-' of none, or where one is not known."""
    mean = np.asarray(values, float).mean() if np.size(values) else np.nan
    return "-" if np.isnan(mean) else f"{mean:.1%}"


def number(values: npt.ArrayLike) -> str:
    """The mean with three decimals; '-' of none, or where one is not known."""
    mean = np.asarray(values, float).mean() if np.size(values) else np.nan
    return "-" if np.isnan(mean) else f"{mean:.3f}"


if __name__ == "__main__":
    sys.exit(main())
