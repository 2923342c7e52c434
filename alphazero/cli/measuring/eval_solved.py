"""`alphazero eval --solved`: how often networks err in solved positions."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import alphazero._core as _core
from alphazero.base.errors import ConfigError
from alphazero.base.log import Work
from alphazero.base.text import counted, signed, table
from alphazero.cli.flags import add_config_flag
from alphazero.games.core_types import Line
from alphazero.games.outside.names import is_outside
from alphazero.games.outside.solvers import FORMS, check_solver, read_solver
from alphazero.measure.elo import paired_errors
from alphazero.play.matches import players
from alphazero.play.search_settings import search_settings
from alphazero.settings.load import load_config
from alphazero.show.console import showing

if TYPE_CHECKING:
    import torch

    from alphazero.measure.truth.positions import SolvedSet
    from alphazero.network.model.resnet import AlphaZeroNet

CONNECT4 = "connect4"
ALONE = "network alone"
TABLES_MIB = 1024  # of all threads' solvers
SMALLEST_TABLE_MIB = 16
CACHE_BYTES = 64 << 20  # for evaluations of a network
NUM_POSITIONS = 1000  # of a game with a solver; a small one has fewer


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of --solved."""
    group = parser.add_argument_group("exact truth of Connect Four, and of games with a solver")
    group.add_argument(
        "--solved", action="store_true", help="count the moves that spoil a win or a draw, set by set"
    )
    group.add_argument(
        "--solver",
        default="",
        metavar="exact|FILE.py:NAME",
        help="with --solved, in games of OpenSpiel and Python files: what solves --positions different ones "
        f"of random games (default: {NUM_POSITIONS})",
    )
    group.add_argument(
        "--solved-sets",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="files of lines 'moves score', directories of Test_L*_R*, own (the project's 600), opening and "
        "early (the project's early positions, to tune on) (default: own)",
    )
    group.add_argument(
        "--no-proofs",
        action="store_true",
        help="with --simulations: let won and lost positions prove nothing of their parents",
    )
    add_config_flag(group, " with the search's other settings")


def run(args: argparse.Namespace, device: torch.device) -> int:
    """Count each network's errors, print them."""
    import torch

    from alphazero.measure.truth.connect4 import SolverOutcomes, read_sets
    from alphazero.measure.truth.positions import find_errors

    if args.simulations is None and (args.no_proofs or args.config):
        raise ConfigError("--no-proofs, --config: only with --simulations N")
    networks = open_networks(args, device)
    about: dict[str, Any] = {}
    if args.solver:
        about, asked_set = outside_truth(args, networks[0].spec.name)
        sets = [asked_set]
    else:
        sets = read_sets(args.solved_sets or ())
    num_threads = torch.get_num_threads()
    outcomes = SolverOutcomes(max(TABLES_MIB, SMALLEST_TABLE_MIB * num_threads), num_threads)
    asked = sum(position.may_err for entry in sets for position in entry.positions)
    results: dict[str, list[SetErrors]] = {}
    for name, network in zip(args.weights, networks, strict=True):
        rows: list[SetErrors] = []
        with showing(name, asked * (args.simulations or 0), "simulation") as work:
            own = players_of(args, network, device, work)
            for entry in sets:
                errs = {
                    player: find_errors(entry.positions, choose, outcomes) for player, choose in own.items()
                }
                rows.append(SetErrors(entry.name, len(entry.positions), errs))
        results[name] = rows
    if args.json:
        counts = [{"weights": name, "sets": [*map(to_json, rows)]} for name, rows in results.items()]
        print(json.dumps({**about, "networks": counts, "comparisons": compare(results)}, indent=2))
        return 0
    parts = [to_table(name, rows) for name, rows in results.items()]
    parts += map(pairs_table, compare(results))
    if about:
        positions = counted(about["positions"], "position")
        parts.insert(0, f"{positions} of random games of {about['game']}; in {asked:,} of them a move errs")
    print("\n\n".join(parts))
    return 0


@dataclass(frozen=True)
class SetErrors:
    """One network on one set: by player, in which positions it errs."""

    name: str
    positions: int
    errs: dict[str, list[bool]]


def with_total(rows: Sequence[SetErrors]) -> list[SetErrors]:
    """The sets, and all of them as one."""
    errs = {player: list(chain.from_iterable(row.errs[player] for row in rows)) for player in rows[0].errs}
    return [*rows, SetErrors("all", sum(row.positions for row in rows), errs)]


def to_table(name: str, rows: Sequence[SetErrors]) -> str:
    """A line for each set and one for all of them."""
    lines = [("set", "positions", *rows[0].errs)]
    for row in with_total(rows):
        figures = (f"{sum(errs)} {sum(errs) / row.positions:7.2%}" for errs in row.errs.values())
        lines.append((row.name, str(row.positions), *figures))
    shown = table(lines, "l".ljust(len(lines[0]), "r"))
    return "\n".join([f"{name}: moves that make the outcome worse", "", *shown])


def to_json(row: SetErrors) -> dict[str, Any]:
    """A set's counts."""
    errors = {player: sum(errs) for player, errs in row.errs.items()}
    return {"name": row.name, "positions": row.positions, "errors": errors}


def compare(results: Mapping[str, list[SetErrors]]) -> list[dict[str, Any]]:
    """The first network with each of the others by set and player; the last sets are all as one."""
    (first, of_first), *others = results.items()
    comparisons = []
    for second, of_second in others:
        rows = []
        for row, other in zip(with_total(of_first), with_total(of_second), strict=True):
            for player, errs in row.errs.items():
                paired = paired_errors(errs, other.errs[player])
                figures = {**vars(paired), "difference": paired.difference, "interval": paired.interval}
                rows.append({"name": row.name, "player": player, **figures})
        comparisons.append({"first": first, "second": second, "sets": rows})
    return comparisons


def pairs_table(comparison: Mapping[str, Any]) -> str:
    """Of a comparison, with a line for each set and player."""
    lines = [("set", "positions", "player", "B - A", "95 % interval", "only A errs", "only B errs")]
    for row in comparison["sets"]:
        low, high = (signed(100 * end, 2) for end in row["interval"])
        alone = (str(row["only_first"]), str(row["only_second"]))
        difference = signed(100 * row["difference"], 2)
        lines.append(
            (row["name"], str(row["positions"]), row["player"], difference, f"{low} to {high}", *alone)
        )
    names = f"A: {comparison['first']}\nB: {comparison['second']}"
    what = "shares of moves that make the outcome worse: their difference in percentage points, by pairs"
    return "\n".join([names, what, "", *table(lines, "lrlrrrr")])


def open_networks(args: argparse.Namespace, device: torch.device) -> list[AlphaZeroNet]:
    """In the order of their names, all of the game that is solved. Raises ConfigError and WeightsError."""
    from alphazero.network.weights.open_network import open_network

    networks = [open_network(name, device)[0] for name in args.weights]
    expected = networks[0].spec.name if args.solver else CONNECT4
    for name, network in zip(args.weights, networks, strict=True):
        if (game := network.spec.name) != expected:
            solver = f", or --solver {FORMS}" if is_outside(game) and not args.solver else ""
            raise ConfigError(f"{name}: plays {game}; expected {expected}{solver}")
    return networks


def outside_truth(args: argparse.Namespace, game: str) -> tuple[dict[str, Any], SolvedSet]:
    """The JSON fields of a game with a solver, and those of random positions in which a move errs."""
    from alphazero.measure.truth.outside import SEED, positions_to_err_in
    from alphazero.measure.truth.positions import SolvedSet

    solver = read_solver("--solver", args.solver)
    check_solver(solver, game)
    count, seed = args.positions or NUM_POSITIONS, SEED if args.seed is None else args.seed
    with showing(f"solving {game}", count, "position") as work:

        def tick(known: int, searched: int) -> None:
            work.advance(known, f"{searched:,} searched" if searched else "")

        solved = positions_to_err_in(game, solver, count, tick, only_errors=False, seed=seed)
    asked = tuple(filter(lambda position: position.may_err, (position.exact(game) for position in solved)))
    if not asked:
        positions = counted(len(solved), "position")
        raise ConfigError(f"--solver {solver}: in {positions} of {game} no move errs; expected some")
    return {"game": game, "solver": solver, "positions": len(solved)}, SolvedSet(game, asked)


def players_of(
    args: argparse.Namespace, network: AlphaZeroNet, device: torch.device, work: Work
) -> dict[str, players.ChooseMoves]:
    """The network alone, and its search; work counts the simulations. Raises ConfigError."""
    import torch

    from alphazero.network.inference.evaluator import NetworkEvaluator

    evaluator = NetworkEvaluator(network, device, args.precision, args.batch_size)
    choosers = {ALONE: players.network_player(evaluator)}
    if args.simulations is None:
        return choosers
    search = load_config(args.config, {}).search
    settings = search_settings(dataclasses.replace(search, simulations=args.simulations))
    settings.proofs = not args.no_proofs
    cache = _core.EvaluationCache(CACHE_BYTES)  # the sets may share positions

    def choose(lines: Sequence[Line]) -> Sequence[int]:
        before = work.done
        player = players.search_player(
            evaluator,
            settings,
            cache=cache,
            num_threads=torch.get_num_threads(),
            after_batch=lambda simulations: work.advance(before + simulations),
        )
        return player(lines)

    return choosers | {counted(args.simulations, "simulation"): choose}
