"""`alphazero eval --solved`: how often a network's moves in Connect Four are errors, against exact truth."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.cli.flags import numbers
from alphazero.errors import ConfigError
from alphazero.self_play_settings import MOST_SIMULATIONS
from alphazero.text import table

if TYPE_CHECKING:
    import torch

    from alphazero.evaluation.players import Player
    from alphazero.evaluation.solved import Outcomes, Question, SolvedSet
    from alphazero.evaluation.solved_pairs import PairedErrors

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
        type=numbers.whole(1, MOST_SIMULATIONS),
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
        help="solve every move first, to tell how many positions allow no error (slow the first time)",
    )


def refuse_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that means nothing without --solved."""
    for name in ("solved_sets", "simulations", "one_ply", "proofs", "config", "all_moves"):
        if getattr(args, name) not in (None, False):
            raise ConfigError(f"--{name.replace('_', '-')}: only with --solved")


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


def run(args: argparse.Namespace, device: torch.device) -> int:
    """Count each network's errors, print them."""
    import torch

    from alphazero.evaluation.solved import SolverOutcomes, read_sets

    check(args)
    sets = read_sets(args.solved_sets or ())
    num_threads = torch.get_num_threads()
    table_mib = max(TABLES_MIB, SMALLEST_TABLE_MIB * num_threads)
    solver_outcomes = SolverOutcomes(args.cache_dir / OUTCOMES_FILE, table_mib, num_threads)
    results = {}
    for name in args.weights:
        results[name] = measure(args, sets, network_players(args, name, device), solver_outcomes)
    pairs = compare(results)
    if args.json:
        print(to_json(results, pairs))
    else:
        tables = [to_table(name, rows) for name, rows in results.items()]
        tables += [pairs_table(of_second) for of_second in pairs]
        print("\n\n".join(tables))
    return 0


def check(args: argparse.Namespace) -> None:
    """Raises ConfigError for flags that contradict each other."""
    if args.data or args.not_in:
        raise ConfigError("--solved: has positions of its own; expected no --data and no --not-in")
    if args.simulations is None and (args.proofs is not None or args.config):
        raise ConfigError("--proofs, --config: are for a search; expected --simulations N beside them")


def network_players(args: argparse.Namespace, name: str, device: torch.device) -> dict[str, Player]:
    """The network alone, its values, the searches asked for, by name. Raises ConfigError, WeightsError."""
    import torch

    from alphazero import _core
    from alphazero.config import load_config
    from alphazero.evaluation.players import network_player, one_ply_player, search_player
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.search.settings import search_settings
    from alphazero.training.checkpoint.any_weights import open_network

    network, _ = open_network(name, device)
    if network.spec.name != "connect4":
        raise ConfigError(f"{name}: plays {network.spec.name}; --solved is for connect4")
    evaluator = NetworkEvaluator(network, network.spec, device, args.precision, args.batch_size)
    players = {ALONE: network_player(evaluator)}
    if args.one_ply:
        players[ONE_PLY] = one_ply_player(evaluator)
    if args.simulations is None:
        return players
    search = load_config(args.config or "", {}).search
    cache = _core.EvaluationCache(CACHE_BYTES)  # one, for the searches meet the same positions
    for proofs in (False, True) if args.proofs is None else (args.proofs,):
        settings = search_settings(dataclasses.replace(search, simulations=args.simulations, proofs=proofs))
        title = f"{args.simulations} simulations{', proofs' if proofs else ''}"
        players[title] = search_player(evaluator, settings, cache=cache, num_threads=torch.get_num_threads())
    return players


def measure(
    args: argparse.Namespace,
    sets: Sequence[SolvedSet],
    players: dict[str, Player],
    solver_outcomes: Outcomes,
) -> list[SetErrors]:
    """Each player on each set."""
    from alphazero.evaluation.solved import count_without_errors, find_errors, table_outcomes

    results = []
    for entry in sets:
        known = all(position.move_scores for position in entry.positions)
        outcomes = table_outcomes if known else solver_outcomes
        without = None
        if known or args.all_moves:
            without = count_without_errors(entry.positions, outcomes, watching(f"{entry.name}, all moves"))
        errs = {
            name: find_errors(entry.positions, player, outcomes, watching(f"{entry.name}, {name}"))
            for name, player in players.items()
        }
        results.append(SetErrors(entry.name, len(entry.positions), without, errs))
    return results


@dataclass(frozen=True)
class Comparison:
    """Two networks on the same positions, for each set and player; the last sets are all of them as one."""

    first: str
    second: str
    rows: list[tuple[str, str, PairedErrors]]


def compare(results: dict[str, list[SetErrors]]) -> list[Comparison]:
    """The first network with each of the others."""
    from alphazero.evaluation.solved_pairs import paired_errors

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


def watching(label: str) -> Callable[[Sequence[Question], Iterable[int]], Iterator[int]]:
    """A bar on stderr where a person looks."""
    from tqdm import tqdm

    def watch(questions: Sequence[Question], outcomes: Iterable[int]) -> Iterator[int]:
        yield from tqdm(
            outcomes,
            desc=label,
            total=len(questions),
            unit="move",
            file=sys.stderr,
            leave=False,
            disable=None,
        )

    return watch


def to_table(name: str, results: Sequence[SetErrors]) -> str:
    """For people: a line a set and one for all of them."""
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
    """For people: a line for each set and player."""
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
    """For programs: by weights file, set by set; then the pairs."""
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
