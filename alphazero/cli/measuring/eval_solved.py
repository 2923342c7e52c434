"""`alphazero eval --solved`: how often networks err in solved positions, alone and in pairs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
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
from alphazero.show.console import Console

if TYPE_CHECKING:
    import torch

    from alphazero.measure.truth.positions import Outcomes, SolvedMove, SolvedSet
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.network.model.resnet import AlphaZeroNet

CONNECT4 = "connect4"
OUTCOMES_FILE = "connect4_outcomes.txt"
ALONE = "network alone"
ONE_PLY = "best value one ply on"
TABLES_MIB = 1024  # of all threads' solvers
SMALLEST_TABLE_MIB = 16
CACHE_BYTES = 64 << 20  # for evaluations of a network
NUM_POSITIONS = 1000  # of a game with a solver of which not all are looked at


@dataclass(frozen=True)
class SetErrors:
    """One network on one set: by player, in which positions it errs."""

    name: str
    positions: int
    errs: dict[str, list[bool]]

    @property
    def errors(self) -> dict[str, int]:
        """How many by each player."""
        return {player: sum(errs) for player, errs in self.errs.items()}


def compare(results: dict[str, list[SetErrors]]) -> list[dict[str, Any]]:
    """The first network with each of the others by set and player, as JSON; the last sets are all as one."""
    (first, sets_of_first), *others = results.items()
    comparisons = []
    for second, sets_of_second in others:
        rows = []
        for row, of_second in zip(with_total(sets_of_first), with_total(sets_of_second), strict=True):
            for player, errs in row.errs.items():
                found = paired_errors(errs, of_second.errs[player])
                figures = {**vars(found), "difference": found.difference, "interval": found.interval}
                rows.append({"name": row.name, "player": player, **figures})
        comparisons.append({"first": first, "second": second, "sets": rows})
    return comparisons


def to_table(name: str, results: Sequence[SetErrors]) -> str:
    """A table with a line for each set and one for all of them."""
    lines = [("set", "positions", *results[0].errs)]
    for row in with_total(results):
        figures = [f"{errors} {errors / row.positions:7.2%}" for errors in row.errors.values()]
        lines.append((row.name, str(row.positions), *figures))
    shown = table(lines, "l".ljust(len(lines[0]), "r"))
    return "\n".join([f"{name}: moves that make the outcome worse", "", *shown])


def with_total(results: Sequence[SetErrors]) -> list[SetErrors]:
    """The sets, and all of them as one."""
    total = SetErrors(
        "all",
        sum(row.positions for row in results),
        {name: list(chain.from_iterable(row.errs[name] for row in results)) for name in results[0].errs},
    )
    return [*results, total]


def pairs_table(comparison: dict[str, Any]) -> str:
    """Of a comparison, with a line for each set and player."""
    lines: list[Sequence[str]] = [
        ("set", "positions", "player", "A", "B", "B - A", "95 % interval", "only A errs", "only B errs")
    ]
    for row in comparison["sets"]:
        low, high = row["interval"]
        alone = (row["only_first"], row["only_second"])
        lines.append(
            (
                row["name"],
                str(row["positions"]),
                row["player"],
                *(f"{(row['both'] + errors) / row['positions']:.2%}" for errors in alone),
                signed(100 * row["difference"], 2),
                f"{signed(100 * low, 2)} to {signed(100 * high, 2)}",
                *map(str, alone),
            )
        )
    return "\n".join(
        [
            f"A: {comparison['first']}",
            f"B: {comparison['second']}",
            "shares of moves that make the outcome worse, their difference in percentage points, by pairs",
            "",
            *table(lines, "lrlrrrrrr"),
        ]
    )


def to_json(about: dict[str, Any], results: dict[str, list[SetErrors]]) -> str:
    """JSON by weights file and set, then the pairs; what is known of a game with a solver comes first."""
    networks = []
    for weights, rows in results.items():
        sets = [{key: getattr(row, key) for key in ("name", "positions", "errors")} for row in rows]
        networks.append({"weights": weights, "sets": sets})
    return json.dumps({**about, "networks": networks, "comparisons": compare(results)}, indent=2)


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
        help="with --solved, in games of OpenSpiel and Python files: what solves the positions, which are "
        "all of a small game, or --positions random ones",
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
        "--one-ply",
        action="store_true",
        help="also count the errors of the moves that lead to the position with the best value, without a "
        "search: what the network's values are worth",
    )
    group.add_argument(
        "--proofs",
        action=argparse.BooleanOptionalAction,
        help="with --simulations: let won and lost positions prove their parents (default: both ways)",
    )
    add_config_flag(group, " with the search's other settings")


def run(args: argparse.Namespace, device: torch.device) -> int:
    """Count each network's errors, print them."""
    import torch

    from alphazero.measure.truth.connect4 import SolverOutcomes, read_sets

    if args.simulations is None and (args.proofs is not None or args.config):
        raise ConfigError("--proofs, --config: only with --simulations N")
    about: dict[str, Any] = {}
    with closing(Console(True)) as console:
        networks = open_networks(args, device)
        if args.solver:
            about, asked_set = outside_truth(args, networks[0].spec.name, console)
            sets, outcomes = [asked_set], None
        else:
            sets = read_sets(args.solved_sets or ())
            num_threads = torch.get_num_threads()
            table_mib = max(TABLES_MIB, SMALLEST_TABLE_MIB * num_threads)
            outcomes = SolverOutcomes(args.cache_dir / OUTCOMES_FILE, table_mib, num_threads)
        asked = sum(position.may_err for entry in sets for position in entry.positions)
        simulations = asked * len(kinds_of_search(args)) * (args.simulations or 0)  # unless a proof ends one
        results = {}
        for name, network in zip(args.weights, networks, strict=True):
            with console.working(name, simulations, "simulation") as work:
                own = players_of(args, network, device, work)
                results[name] = [measure(entry, own, outcomes, console) for entry in sets]
    if args.json:
        print(to_json(about, results))
        return 0
    parts = [to_table(name, rows) for name, rows in results.items()]
    if about:
        chosen = "all that can be reached" if about["is_all"] else "of random games"
        positions = f"{counted(about['positions'], 'position')} of {about['game']}, {chosen}"
        parts.insert(0, f"{positions}; in {asked:,} of them a move errs")
    print("\n\n".join([*parts, *map(pairs_table, compare(results))]))
    return 0


def open_networks(args: argparse.Namespace, device: torch.device) -> list[AlphaZeroNet]:
    """In the order of their names, all of the game that is solved. Raises ConfigError and WeightsError."""
    from alphazero.network.weights.open_network import open_network

    networks = [open_network(name, device)[0] for name in args.weights]
    expected = networks[0].spec.name if args.solver else CONNECT4
    for name, network in zip(args.weights, networks, strict=True):
        game = network.spec.name
        if game != expected and args.solver:
            raise ConfigError(f"{name}: plays {game}; expected {expected}, as {args.weights[0]}")
        if game != expected:
            wanted = f"; expected --solver {FORMS}" if is_outside(game) else ""
            raise ConfigError(f"{name}: plays {game}; --solved is for {CONNECT4}{wanted}")
    return networks


def outside_truth(args: argparse.Namespace, game: str, console: Console) -> tuple[dict[str, Any], SolvedSet]:
    """The JSON fields of a game with a solver, and the positions in which a move errs.

    They are of all positions where these are few and --positions asks for no number, else of random ones.
    """
    from alphazero.measure.truth.outside import SEED, positions_to_err_in, reachable_positions
    from alphazero.measure.truth.positions import SolvedSet

    solver = read_solver("--solver", args.solver)
    check_solver(solver, game)
    with console.working(f"solving {game}", 0, "position") as work:

        def tick(known: int, searched: int) -> None:
            work.advance(known, f"{searched:,} searched" if searched else "")

        found = None if args.positions else reachable_positions(game, solver, tick)
        is_all = found is not None
        if found is None:
            count, seed = args.positions or NUM_POSITIONS, SEED if args.seed is None else args.seed
            found = positions_to_err_in(game, solver, count, tick, only_errors=False, seed=seed)
    asked = tuple(filter(lambda position: position.may_err, (position.exact(game) for position in found)))
    if not asked:
        positions = counted(len(found), "position")
        raise ConfigError(f"--solver {solver}: in {positions} of {game} no move errs; expected some")
    about = {"game": game, "solver": solver, "positions": len(found), "is_all": is_all}
    return about, SolvedSet(game, asked)


def kinds_of_search(args: argparse.Namespace) -> Sequence[bool]:
    """For each search that is asked for, whether won and lost positions prove their parents in it."""
    if args.simulations is None:
        return ()
    return (False, True) if args.proofs is None else (args.proofs,)


def players_of(
    args: argparse.Namespace, network: AlphaZeroNet, device: torch.device, work: Work
) -> dict[str, players.ChooseMoves]:
    """The network alone, its values, and the searches; work counts their simulations. Raises ConfigError."""
    from alphazero.network.inference.evaluator import NetworkEvaluator

    evaluator = NetworkEvaluator(network, device, args.precision, args.batch_size)
    found = {ALONE: players.network_player(evaluator)}
    if args.one_ply:
        found[ONE_PLY] = players.one_ply_player(evaluator)
    cache = _core.EvaluationCache(CACHE_BYTES)  # shared by the searches, which meet the same positions
    for proofs in kinds_of_search(args):
        search = load_config(args.config, {}).search
        settings = search_settings(dataclasses.replace(search, simulations=args.simulations))
        settings.proofs = proofs
        title = f"{args.simulations} simulations{', proofs' if proofs else ''}"
        found[title] = watched_search(evaluator, settings, cache, work)
    return found


def watched_search(
    evaluator: NetworkEvaluator, settings: _core.SearchSettings, cache: _core.EvaluationCache, work: Work
) -> players.ChooseMoves:
    """A search whose simulations are counted, in the end all of them even where proofs saved some."""
    import torch

    def choose(lines: Sequence[Line]) -> Sequence[int]:
        before, threads = work.done, torch.get_num_threads()
        player = players.search_player(
            evaluator,
            settings,
            cache=cache,
            num_threads=threads,
            after_batch=lambda simulations: work.advance(before + simulations),
        )
        moves = player(lines)
        work.advance(before + len(lines) * settings.simulations)
        return moves

    return choose


def measure(
    entry: SolvedSet, own: dict[str, players.ChooseMoves], solver: Outcomes | None, console: Console
) -> SetErrors:
    """Each player on a set. solver: of what the set does not tell."""
    from alphazero.measure.truth.positions import find_errors, known_outcomes

    outcomes: Outcomes = known_outcomes
    if not all(position.move_scores for position in entry.positions):
        assert solver is not None
        outcomes = with_progress(solver, console, entry.name)
    errs = {name: find_errors(entry.positions, player, outcomes) for name, player in own.items()}
    return SetErrors(entry.name, len(entry.positions), errs)


def with_progress(outcomes: Outcomes, console: Console, name: str) -> Outcomes:
    """The outcomes of moves, with the progress of solving them on the console."""

    def solve(moves: Sequence[SolvedMove]) -> Iterator[int]:
        with console.working(f"solving {name}", len(moves), "move") as work:
            for outcome in outcomes(moves):
                work.add(1)
                yield outcome

    return solve
