"""`alphazero eval --solved`: how often networks err in solved Connect Four positions, alone and in pairs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import alphazero._core as _core
from alphazero.base import records
from alphazero.base.errors import ConfigError
from alphazero.base.log import Work
from alphazero.base.section import flag_of
from alphazero.base.text import table
from alphazero.cli.flags import add_config_flag, device_of
from alphazero.games.core_types import Line
from alphazero.games.outside.names import is_outside
from alphazero.games.outside.solvers import FORMS
from alphazero.measure.elo import paired_errors
from alphazero.measure.truth.connect4 import (
    Outcomes,
    SolvedMove,
    SolvedSet,
    SolverOutcomes,
    count_without_errors,
    find_errors,
    may_err,
    read_sets,
    table_outcomes,
)
from alphazero.play.matches import players
from alphazero.play.search_settings import search_settings
from alphazero.play.workers import Place, Reply, Worker, Workers
from alphazero.settings.load import load_config
from alphazero.show.console import Console

if TYPE_CHECKING:
    import torch

    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.network.model.resnet import AlphaZeroNet

# The moves of a player, by its name, in a set of this number, whose lines are given.
Choices: TypeAlias = Callable[[int, str, Sequence[Line]], Sequence[int]]

OUTCOMES_FILE = "connect4_outcomes.txt"
ALONE = "network alone"
ONE_PLY = "best value one ply on"
TABLES_MIB = 1024  # of all threads' solvers
SMALLEST_TABLE_MIB = 16
CACHE_BYTES = 64 << 20  # for evaluations of a network


@dataclass(frozen=True)
class SetErrors:
    """One network on one set: by player, in which positions it errs.

    without_errors: positions where no move errs, if known.
    """

    name: str
    positions: int
    without_errors: int | None
    errs: dict[str, list[bool]]

    @property
    def errors(self) -> dict[str, int]:
        """How many by each player."""
        return {player: sum(errs) for player, errs in self.errs.items()}

    def figures(self) -> dict[str, Any]:
        """The numbers for programs."""
        known = {"positions": self.positions, "without_errors": self.without_errors}
        return {"name": self.name, **known, "errors": self.errors}


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
    lines = [("set", "positions", "no error possible", *results[0].errs)]
    for row in with_total(results):
        without = "-" if row.without_errors is None else str(row.without_errors)
        figures = [f"{errors} {errors / row.positions:7.2%}" for errors in row.errors.values()]
        lines.append((row.name, str(row.positions), without, *figures))
    shown = table(lines, "l".ljust(len(lines[0]), "r"))
    return "\n".join([f"{name}: moves that make the outcome worse", "", *shown])


def with_total(results: Sequence[SetErrors]) -> list[SetErrors]:
    """The sets, and all of them as one."""
    without = [row.without_errors for row in results if row.without_errors is not None]
    total = SetErrors(
        "all",
        sum(row.positions for row in results),
        sum(without) if len(without) == len(results) else None,
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
                f"{100 * row['difference']:+.2f}",
                f"{100 * low:+.2f} to {100 * high:+.2f}",
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


def to_json(results: dict[str, list[SetErrors]]) -> str:
    """JSON by weights file and set, then the pairs."""
    networks = [{"weights": name, "sets": [row.figures() for row in rows]} for name, rows in results.items()]
    return json.dumps({"networks": networks, "comparisons": compare(results)}, indent=2)


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
    group.add_argument(
        "--all-moves",
        action="store_true",
        help="solve every move first, to count the positions that allow no error (slow the first time)",
    )


def refuse_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that needs --solved."""
    for name in ("solver", "solved_sets", "simulations", "one_ply", "proofs", "config", "all_moves"):
        if getattr(args, name) not in (None, False, ""):
            others = ", --epd or --puzzles" if name == "simulations" else ""
            raise ConfigError(f"{flag_of(name)}: only with --solved{others}")


def run(args: argparse.Namespace, device: torch.device, places: Sequence[Place]) -> int:
    """Count each network's errors, print them. places: of workers that choose the moves, none for here."""
    import torch

    check(args)
    sets = read_sets(args.solved_sets or ())
    num_threads = torch.get_num_threads()
    table_mib = max(TABLES_MIB, SMALLEST_TABLE_MIB * num_threads)
    solver_outcomes = SolverOutcomes(args.cache_dir / OUTCOMES_FILE, table_mib, num_threads)
    results = {}
    with closing(Console(True)) as console, Workers("eval", args, places) as workers:
        for number, name in enumerate(args.weights):
            with console.working(name, num_simulations(args, sets), "simulation") as shown:
                if places:
                    choose = dealt_choices(workers, number, shown)
                else:
                    choose = own_choices(args, name, device, shown)
                results[name] = measure(args, sets, choose, solver_outcomes, console)
    if args.json:
        print(to_json(results))
    else:
        tables = [to_table(name, rows) for name, rows in results.items()]
        print("\n\n".join([*tables, *map(pairs_table, compare(results))]))
    return 0


@dataclass(frozen=True)
class ChoiceShare:
    """Of the positions of a set in which an error is possible, those with number mod processes == process.

    network, set: numbers. player: a name of player_names.
    """

    network: int
    player: str
    set: int
    process: int
    processes: int


# What workers of `eval` send: units of their work done since the last time, the result of a task.
MORE, RESULT = "more", "result"


def results_of(workers: Workers, tasks: Sequence[object], shown: Work) -> Iterator[Reply]:
    """The result of each worker's task, with their progress shown."""
    for reply in workers.replies([records.to_json(task) for task in tasks]):
        if reply.kind == MORE:
            shown.done += int(reply.content)
        else:
            yield reply


def own_choices(args: argparse.Namespace, name: str, device: torch.device, shown: Work) -> Choices:
    """By a network of this process."""

    def more(simulations: int) -> None:
        shown.done += simulations

    own = network_players(args, name, device, more)
    return lambda number, player, lines: own[player](lines)


def dealt_choices(workers: Workers, network: int, shown: Work) -> Choices:
    """By workers."""

    def choose(number: int, player: str, lines: Sequence[Line]) -> list[int]:
        processes = len(workers)
        shares = [ChoiceShare(network, player, number, own, processes) for own in range(processes)]
        moves = [0] * len(lines)
        for reply in results_of(workers, shares, shown):
            moves[reply.worker :: processes] = json.loads(reply.content)
        return moves

    return choose


def work(args: argparse.Namespace, worker: Worker) -> None:
    """A worker's side of dealt_choices."""
    sets, device = read_sets(args.solved_sets or ()), device_of(args.device)
    own: dict[str, players.ChooseMoves] = {}
    network: int | None = None
    for task in worker.tasks():
        share = records.from_json(ChoiceShare, task)
        if share.network != network:
            network = share.network
            own = network_players(
                args, args.weights[network], device, lambda count: worker.reply(MORE, str(count))
            )
        asked = [position for position in sets[share.set].positions if may_err(position)]
        lines = [position.line() for position in asked[share.process :: share.processes]]
        moves = own[share.player](lines) if lines else ()
        worker.reply(RESULT, json.dumps([int(move) for move in moves]))


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError for flags that contradict each other."""
    if args.data or args.not_in:
        raise ConfigError("--solved: uses its own positions; expected neither --data nor --not-in")
    for name in ("positions", "seed", "num_workers"):
        if getattr(args, name) is not None:
            raise ConfigError(f"{flag_of(name)}: only with --data")
    if args.simulations is None and (args.proofs is not None or args.config):
        raise ConfigError("--proofs, --config: only with --simulations N")


def num_simulations(args: argparse.Namespace, sets: Sequence[SolvedSet]) -> int:
    """The simulations of one network's searches where no proof ends one early."""
    asked = sum(may_err(position) for entry in sets for position in entry.positions)
    searches = sum(proofs is not None for proofs in player_names(args).values())
    return asked * searches * (args.simulations or 0)


def player_names(args: argparse.Namespace) -> dict[str, bool | None]:
    """The network alone, its values, the searches asked for.

    Of a search: whether won and lost positions prove their parents in it.
    """
    names: dict[str, bool | None] = {ALONE: None}
    if args.one_ply:
        names[ONE_PLY] = None
    for proofs in (False, True) if args.simulations is not None else ():
        if args.proofs in (None, proofs):
            names[f"{args.simulations} simulations{', proofs' if proofs else ''}"] = proofs
    return names


def network_players(
    args: argparse.Namespace, name: str, device: torch.device, more: Callable[[int], None]
) -> dict[str, players.ChooseMoves]:
    """players_of the network of this name. Raises ConfigError and WeightsError."""
    from alphazero.network.weights.open_network import open_network

    network, _ = open_network(name, device)
    if network.spec.name != "connect4":
        wanted = f"; expected --solver {FORMS}" if is_outside(network.spec.name) else ""
        raise ConfigError(f"{name}: plays {network.spec.name}; --solved is for connect4{wanted}")
    return players_of(args, network, device, more)


def players_of(
    args: argparse.Namespace, network: AlphaZeroNet, device: torch.device, more: Callable[[int], None]
) -> dict[str, players.ChooseMoves]:
    """The players of player_names; more gets simulations as they are made. Raises ConfigError."""
    from alphazero.network.inference.evaluator import NetworkEvaluator

    evaluator = NetworkEvaluator(network, device, args.precision, args.batch_size)
    found: dict[str, players.ChooseMoves] = {}
    cache = _core.EvaluationCache(CACHE_BYTES)  # shared by the searches, which meet the same positions
    for title, proofs in player_names(args).items():
        if proofs is None:
            make = players.one_ply_player if title == ONE_PLY else players.network_player
            found[title] = make(evaluator)
            continue
        search = load_config(args.config, {}).search
        settings = search_settings(dataclasses.replace(search, simulations=args.simulations))
        settings.proofs = proofs
        found[title] = watched_search(evaluator, settings, cache, more)
    return found


def watched_search(
    evaluator: NetworkEvaluator,
    settings: _core.SearchSettings,
    cache: _core.EvaluationCache,
    more: Callable[[int], None],
) -> players.ChooseMoves:
    """A search whose simulations go to `more`, in the end all of them even where proofs saved some."""
    import torch

    def choose(lines: Sequence[Line]) -> Sequence[int]:
        seen = 0

        def advance(simulations: int) -> None:
            nonlocal seen
            more(simulations - seen)
            seen = simulations

        player = players.search_player(
            evaluator, settings, cache=cache, num_threads=torch.get_num_threads(), after_batch=advance
        )
        moves = player(lines)
        advance(len(lines) * settings.simulations)
        return moves

    return choose


def measure(
    args: argparse.Namespace,
    sets: Sequence[SolvedSet],
    choose: Choices,
    solver_outcomes: Outcomes,
    console: Console,
) -> list[SetErrors]:
    """Each player on each set."""
    results = []
    for number, entry in enumerate(sets):
        known = all(position.move_scores for position in entry.positions)
        outcomes = table_outcomes if known else with_progress(solver_outcomes, console, entry.name)
        without = None
        if known or args.all_moves:
            without = count_without_errors(entry.positions, outcomes)
        errs = {
            name: find_errors(entry.positions, partial(choose, number, name), outcomes)
            for name in player_names(args)
        }
        results.append(SetErrors(entry.name, len(entry.positions), without, errs))
    return results


def with_progress(outcomes: Outcomes, console: Console, name: str) -> Outcomes:
    """The outcomes of moves, with the progress of solving them on the console."""

    def solve(moves: Sequence[SolvedMove]) -> Iterator[int]:
        with console.working(f"solving {name}", len(moves), "move") as work:
            for outcome in outcomes(moves):
                work.done += 1
                yield outcome

    return solve
