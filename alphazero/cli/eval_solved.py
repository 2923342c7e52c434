"""`alphazero eval --solved`: how often networks err in solved Connect Four positions, alone and in pairs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from alphazero.base import records
from alphazero.base.errors import ConfigError
from alphazero.base.text import table
from alphazero.settings.flags import whole
from alphazero.settings.self_play import MOST_SIMULATIONS

if TYPE_CHECKING:
    from alphazero.measure.elo import PairedErrors


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


@dataclass(frozen=True)
class Comparison:
    """Two networks on the same positions, for each set and player; the last sets are all of them as one."""

    first: str
    second: str
    rows: list[tuple[str, str, PairedErrors]]


def compare(results: dict[str, list[SetErrors]]) -> list[Comparison]:
    """The first network with each of the others."""
    from alphazero.measure.elo import paired_errors

    (first, sets_of_first), *others = results.items()
    return [
        Comparison(
            first,
            second,
            [
                (row.name, player, paired_errors(errs, of_second.errs[player]))
                for row, of_second in zip(with_total(sets_of_first), with_total(sets_of_second), strict=True)
                for player, errs in row.errs.items()
            ],
        )
        for second, sets_of_second in others
    ]


def to_table(name: str, results: Sequence[SetErrors]) -> str:
    """A table with a line for each set and one for all of them."""
    players = list(results[0].errs)
    rows = with_total(results)
    lines = [("set", "positions", "no error possible", *players)]
    for row in rows:
        without = "-" if row.without_errors is None else str(row.without_errors)
        figures = [f"{row.errors[player]} {row.errors[player] / row.positions:7.2%}" for player in players]
        lines.append((row.name, str(row.positions), without, *figures))
    return "\n".join(
        [f"{name}: moves that make the outcome worse", "", *table(lines, "lrr" + "r" * len(players))]
    )


def with_total(results: Sequence[SetErrors]) -> list[SetErrors]:
    """The sets, and all of them as one."""
    without = [row.without_errors for row in results if row.without_errors is not None]
    total = SetErrors(
        "all",
        sum(row.positions for row in results),
        sum(without) if len(without) == len(results) else None,
        {
            player: list(chain.from_iterable(row.errs[player] for row in results))
            for player in results[0].errs
        },
    )
    return [*results, total]


def pairs_table(comparison: Comparison) -> str:
    """A table with a line for each set and player."""
    lines: list[Sequence[str]] = [
        ("set", "positions", "player", "A", "B", "B - A", "95 % interval", "only A errs", "only B errs")
    ]
    for name, player, pairs in comparison.rows:
        low, high = pairs.interval
        shares = [
            f"{(pairs.both + alone) / pairs.positions:.2%}" for alone in (pairs.only_first, pairs.only_second)
        ]
        lines.append(
            (
                name,
                str(pairs.positions),
                player,
                *shares,
                f"{100 * pairs.difference:+.2f}",
                f"{100 * low:+.2f} to {100 * high:+.2f}",
                str(pairs.only_first),
                str(pairs.only_second),
            )
        )
    return "\n".join(
        [
            f"A: {comparison.first}",
            f"B: {comparison.second}",
            "shares of moves that make the outcome worse, their difference in percentage points, by pairs",
            "",
            *table(lines, "lrlrrrrrr"),
        ]
    )


def to_json(results: dict[str, list[SetErrors]], comparisons: Sequence[Comparison]) -> str:
    """JSON by weights file and set, then the pairs."""
    networks = [
        {
            "weights": name,
            "sets": [
                {
                    "name": row.name,
                    "positions": row.positions,
                    "without_errors": row.without_errors,
                    "errors": row.errors,
                }
                for row in rows
            ],
        }
        for name, rows in results.items()
    ]
    pairs = [
        {
            "first": comparison.first,
            "second": comparison.second,
            "sets": [
                {
                    "name": name,
                    "player": player,
                    **dataclasses.asdict(found),
                    "difference": found.difference,
                    "interval": found.interval,
                }
                for name, player, found in comparison.rows
            ],
        }
        for comparison in comparisons
    ]
    return json.dumps({"networks": networks, "comparisons": pairs}, indent=2)


if TYPE_CHECKING:
    import torch

    import alphazero._core as _core
    from alphazero.base.log import Work
    from alphazero.cluster.workers import Place, Worker, Workers
    from alphazero.games.core_types import Line
    from alphazero.measure.exact_truth import Outcomes, SolvedMove, SolvedSet
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.play.matches.players import Player
    from alphazero.show.console import Console

    # The moves of a player, by its name, in a set of this number, whose lines are given.
    Choices: TypeAlias = Callable[[int, str, Sequence[Line]], Sequence[int]]

OUTCOMES_FILE = "connect4_outcomes.txt"
ALONE = "network alone"
ONE_PLY = "best value one ply on"
TABLES_MIB = 1024  # of all threads' solvers
SMALLEST_TABLE_MIB = 16
CACHE_BYTES = 64 << 20  # for evaluations of a network


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of --solved."""
    group = parser.add_argument_group("exact truth of Connect Four")
    group.add_argument(
        "--solved", action="store_true", help="count the moves that spoil a win or a draw, set by set"
    )
    group.add_argument(
        "--solved-sets",
        type=Path,
        nargs="+",
        metavar="PATH",
        help="files of lines 'moves score', directories of Test_L*_R*, own (the project's 600), early (the "
        "project's early positions, to tune on) (default: own)",
    )
    group.add_argument(
        "--simulations",
        type=whole(1, MOST_SIMULATIONS),
        metavar="N",
        help="also count the errors of a search of N simulations (default: no search)",
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
    group.add_argument(
        "--config", metavar="NAME|FILE", help="preset or TOML with the search's other settings"
    )
    group.add_argument(
        "--all-moves",
        action="store_true",
        help="solve every move first, to count the positions that allow no error (slow the first time)",
    )


def refuse_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that needs --solved."""
    for name in ("solved_sets", "simulations", "one_ply", "proofs", "config", "all_moves"):
        if getattr(args, name) not in (None, False):
            raise ConfigError(f"--{name.replace('_', '-')}: only with --solved")


def run(args: argparse.Namespace, device: torch.device, places: Sequence[Place]) -> int:
    """Count each network's errors, print them. places: of workers that choose the moves, none for here."""
    import torch

    from alphazero.cluster.workers import Workers
    from alphazero.measure.exact_truth import SolverOutcomes, read_sets
    from alphazero.show.console import Console

    check(args)
    sets = read_sets(args.solved_sets or ())
    num_threads = torch.get_num_threads()
    table_mib = max(TABLES_MIB, SMALLEST_TABLE_MIB * num_threads)
    solver_outcomes = SolverOutcomes(args.cache_dir / OUTCOMES_FILE, table_mib, num_threads)
    results = {}
    with ExitStack() as stack:
        console = stack.enter_context(closing(Console(True)))
        workers = stack.enter_context(Workers("eval", args, places)) if places else None
        for number, name in enumerate(args.weights):
            with console.working(name, num_simulations(args, sets), "simulation") as shown:
                if workers is not None:
                    choose = dealt_choices(workers, number, shown)
                else:
                    choose = own_choices(args, name, device, shown)
                results[name] = measure(args, sets, choose, solver_outcomes, console)
    pairs = compare(results)
    if args.json:
        print(to_json(results, pairs))
    else:
        tables = [to_table(name, rows) for name, rows in results.items()]
        tables += [pairs_table(of_second) for of_second in pairs]
        print("\n\n".join(tables))
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


# What workers send: simulations since the last time, moves.
MORE, MOVES = "more", "moves"


def own_choices(args: argparse.Namespace, name: str, device: torch.device, shown: Work) -> Choices:
    """By a network of this process."""

    def more(simulations: int) -> None:
        shown.done += simulations

    players = network_players(args, name, device, more)
    return lambda number, player, lines: players[player](lines)


def dealt_choices(workers: Workers, network: int, shown: Work) -> Choices:
    """By workers."""

    def choose(number: int, player: str, lines: Sequence[Line]) -> list[int]:
        processes = len(workers)
        shares = [ChoiceShare(network, player, number, own, processes) for own in range(processes)]
        moves = [0] * len(lines)
        workers.ask([records.to_json(share) for share in shares])
        for reply in workers.replies():
            if reply.kind == MORE:
                shown.done += int(reply.content)
            else:
                moves[reply.worker :: processes] = json.loads(reply.content)
        return moves

    return choose


def work(args: argparse.Namespace, device: torch.device, worker: Worker) -> None:
    """A worker's side of dealt_choices."""
    from alphazero.measure.exact_truth import may_err, read_sets

    sets = read_sets(args.solved_sets or ())
    players: dict[str, Player] = {}
    network: int | None = None
    for task in worker.tasks():
        share = records.from_json(ChoiceShare, task)
        if share.network != network:
            network = share.network
            players = network_players(
                args, args.weights[network], device, lambda count: worker.reply(MORE, str(count))
            )
        asked = [position for position in sets[share.set].positions if may_err(position)]
        lines = [position.line() for position in asked[share.process :: share.processes]]
        moves = players[share.player](lines) if lines else ()
        worker.reply(MOVES, json.dumps([int(move) for move in moves]))


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError for flags that contradict each other."""
    if args.data or args.not_in:
        raise ConfigError("--solved: uses its own positions; expected neither --data nor --not-in")
    for name in ("positions", "seed", "num_workers"):
        if getattr(args, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')}: only with --data")
    if args.simulations is None and (args.proofs is not None or args.config):
        raise ConfigError("--proofs, --config: only with --simulations N")


def proof_modes(args: argparse.Namespace) -> tuple[bool, ...]:
    """One for each search asked for: whether won and lost positions prove their parents in it."""
    if args.simulations is None:
        return ()
    return (False, True) if args.proofs is None else (args.proofs,)


def num_simulations(args: argparse.Namespace, sets: Sequence[SolvedSet]) -> int:
    """The simulations of one network's searches where no proof ends one early."""
    from alphazero.measure.exact_truth import may_err

    asked = sum(may_err(position) for entry in sets for position in entry.positions)
    return asked * len(proof_modes(args)) * (args.simulations or 0)


def player_names(args: argparse.Namespace) -> dict[str, bool | None]:
    """The network alone, its values, the searches asked for, each of which uses proofs or does not."""
    names: dict[str, bool | None] = {ALONE: None}
    if args.one_ply:
        names[ONE_PLY] = None
    for proofs in proof_modes(args):
        names[f"{args.simulations} simulations{', proofs' if proofs else ''}"] = proofs
    return names


def network_players(
    args: argparse.Namespace, name: str, device: torch.device, more: Callable[[int], None]
) -> dict[str, Player]:
    """The players of player_names; more gets simulations as they are made.

    Raises ConfigError and WeightsError.
    """
    import alphazero._core as _core
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.network.weights.open_network import open_network
    from alphazero.play.matches.players import network_player, one_ply_player
    from alphazero.play.search_settings import search_settings
    from alphazero.settings.load import load_config

    network, _ = open_network(name, device)
    if network.spec.name != "connect4":
        raise ConfigError(f"{name}: plays {network.spec.name}; --solved is for connect4")
    evaluator = NetworkEvaluator(network, device, args.precision, args.batch_size)
    players: dict[str, Player] = {}
    cache = _core.EvaluationCache(CACHE_BYTES)  # shared by the searches, which meet the same positions
    for title, proofs in player_names(args).items():
        if proofs is None:
            players[title] = (one_ply_player if title == ONE_PLY else network_player)(evaluator)
            continue
        search = load_config(args.config or "", {}).search
        settings = search_settings(dataclasses.replace(search, simulations=args.simulations))
        settings.proofs = proofs
        players[title] = watched_search(evaluator, settings, cache, more)
    return players


def watched_search(
    evaluator: NetworkEvaluator,
    settings: _core.SearchSettings,
    cache: _core.EvaluationCache,
    more: Callable[[int], None],
) -> Player:
    """A search whose simulations go to `more`, in the end all of them even where proofs saved some."""
    import torch

    from alphazero.play.matches.players import search_player

    def choose(lines: Sequence[Line]) -> Sequence[int]:
        seen = 0

        def advance(simulations: int) -> None:
            nonlocal seen
            more(simulations - seen)
            seen = simulations

        player = search_player(
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
    from alphazero.measure.exact_truth import count_without_errors, find_errors, table_outcomes

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
