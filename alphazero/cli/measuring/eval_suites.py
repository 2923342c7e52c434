"""`alphazero eval --epd` and `--puzzles`: chess positions with solutions, tried by networks and searches."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import ConfigError
from alphazero.base.text import counted, table
from alphazero.cli.flags import add_number, add_paths, device_of
from alphazero.games.registry import CHESS
from alphazero.settings.flags import count
from alphazero.show.console import showing

if TYPE_CHECKING:
    from alphazero.measure.puzzles import Choose, Puzzle
    from alphazero.play.matches.players import ChooseMoves
    from alphazero.search.game_trees import GameTrees

ALONE = "network alone"
BATCH_SIZE = 256  # of a network alone, unless another is given
AT_ONCE = 64  # puzzles whose trees share batches
MOST_STEPS = 6  # of the table of a suite: all nodes, half of them, a quarter, ...
WIDTH = 110
NO_BREAK = "\N{NO-BREAK SPACE}"


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of --epd and --puzzles."""
    group = parser.add_argument_group("chess positions with solutions")
    add_paths(group, "--epd", "test suites in EPD with bm (best moves) or am (moves to avoid)", several=True)
    add_paths(
        group,
        "--puzzles",
        "puzzles of Lichess (.csv, .csv.zst): solved by rating, and the rating that explains it",
    )
    add_number(group, "--count", count, "puzzles to try (default: all)")


def draw(eligible: npt.NDArray[np.int64], count: int, seed: int | None) -> npt.NDArray[np.int64]:
    """min(count, len(eligible)) of them, ascending: evenly spread, or at random with a seed."""
    count = min(count, len(eligible))
    if seed is None:
        return eligible[np.arange(count, dtype=np.int64) * len(eligible) // count]
    chosen = np.random.default_rng(seed).choice(len(eligible), count, replace=False)
    return eligible[np.sort(chosen)]


def run(args: argparse.Namespace) -> int:
    """Try the same positions by each network and its search; print tables or JSON. Raises ConfigError."""
    report = try_puzzles(args) if args.puzzles else try_suites(args)
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print(puzzle_tables(report) if args.puzzles else suite_table(args, report))
    return 0


@dataclass(frozen=True)
class Solver:
    """A network: its likeliest move, and its search where one is asked for."""

    name: str
    alone: ChooseMoves
    trees: GameTrees | None


def solvers_of(args: argparse.Namespace) -> Iterator[Solver]:
    """Each network that is named. Raises ConfigError for one of another game, and WeightsError."""
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.network.weights.open_network import open_network
    from alphazero.play.matches.players import engine_trees, network_player

    device = device_of(args.device)
    networks = {name: open_network(name, device)[0] for name in args.weights}
    for name, network in networks.items():
        if (game := network.spec.name) != CHESS:
            raise ConfigError(f"{name}: plays {game}; --epd and --puzzles are for {CHESS}")
    for name, network in networks.items():
        alone = NetworkEvaluator(network, device, args.precision, args.batch_size or BATCH_SIZE)
        trees = None
        if args.simulations is not None:
            trees = engine_trees(network, device, args.precision, args.batch_size or 0)
        yield Solver(name, network_player(alone), trees)


def try_suites(args: argparse.Namespace) -> dict[str, Any]:
    """Every answer, by network, suite, position and player."""
    from alphazero.measure.epd import answers_alone, answers_of_search, read_epd

    suites = {str(path): read_epd(path) for path in args.epd}
    simulations = (args.simulations or 0) * sum(map(len, suites.values()))
    networks = []
    for solver in solvers_of(args):
        rows = []
        with showing(solver.name, simulations, "simulation") as work:
            for suite, positions in suites.items():
                answers = {ALONE: answers_alone(positions, solver.alone)}
                if solver.trees is not None:
                    searched = answers_of_search(positions, solver.trees, args.simulations, work)
                    answers[counted(args.simulations, "simulation")] = searched
                solved = {player: sum(answer.solved for answer in each) for player, each in answers.items()}
                listed = [
                    {
                        "id": position.name,
                        "fen": position.fen,
                        "wanted": position.wanted,
                        "answers": {player: asdict(each[number]) for player, each in answers.items()},
                    }
                    for number, position in enumerate(positions)
                ]
                rows.append({"suite": suite, "solved": solved, "positions": listed})
        networks.append({"weights": solver.name, "suites": rows})
    return {"networks": networks}


def suite_table(args: argparse.Namespace, report: Mapping[str, Any]) -> str:
    """A row for each suite and network, then what was not solved, with the moves made there."""
    nodes = args.simulations or 0
    steps = sorted({nodes >> halvings for halvings in range(MOST_STEPS)} - {0})
    columns = ("suite", "weights", "positions", ALONE, *(f"within {step:,}" for step in steps))
    rows: list[Sequence[str]] = [columns]
    listed = []
    for of_suite in zip(*(network["suites"] for network in report["networks"]), strict=True):
        for network, suite in zip(report["networks"], of_suite, strict=True):
            name, positions = network["weights"], suite["positions"]
            *_, last = suite["solved"]
            answers = [position["answers"][last] for position in positions]
            within = [sum(0 < (answer["within"] or 0) <= step for answer in answers) for step in steps]
            figures = map(str, (suite["solved"][ALONE], *within))
            rows.append((Path(suite["suite"]).name, name, f"{len(positions):,}", *figures))
            failed = (
                f"{position['id']}{NO_BREAK}{answer['move']}"
                for position, answer in zip(positions, answers, strict=True)
                if not answer["solved"]
            )
            unsolved = f"not solved by {name}, {last}: {', '.join(failed) or 'none'}"
            listed.append(textwrap.fill(unsolved, WIDTH, subsequent_indent="  ").replace(NO_BREAK, " "))
    notes = (
        ["", f"within n: right from n nodes to the end of {counted(nodes, 'simulation')}"] if steps else []
    )
    return "\n".join([*table(rows, "ll".ljust(len(columns), "r")), *notes, "", *listed])


def try_puzzles(args: argparse.Namespace) -> dict[str, Any]:
    """What each network and its search solved."""
    from alphazero.measure.puzzles import read_puzzles

    def choose(number: int) -> list[int]:
        chosen: list[int] = draw(np.arange(number, dtype=np.int64), args.count or number, args.seed).tolist()
        return chosen

    puzzles, in_file = read_puzzles(args.puzzles, choose)
    networks = [
        {"weights": solver.name, "players": puzzle_scores(solver, args.simulations, puzzles)}
        for solver in solvers_of(args)
    ]
    about = {"puzzles": len(puzzles), "in_file": in_file, "file": str(args.puzzles), "seed": args.seed}
    return {**about, "networks": networks}


def puzzle_scores(solver: Solver, nodes: int, puzzles: Sequence[Puzzle]) -> dict[str, Any]:
    """Of a network and its search; an infinite rating is None."""
    from alphazero.measure.puzzles import bands, explaining_rating, solve
    from alphazero.search.tree_search import SearchLimits

    trees = solver.trees
    players: dict[str, Choose] = {ALONE: lambda lines: solver.alone(list(lines.values()))}
    if trees is not None:
        players[counted(nodes, "simulation")] = lambda lines: [
            view.moves[0].move for view in trees.search(lines, SearchLimits(nodes=nodes))
        ]
    scores = {}
    for player, choose in players.items():
        began = time.monotonic()
        with showing(f"{solver.name}, {player}", len(puzzles), "puzzle") as work:

            def ended(number: int) -> None:
                work.add(1)
                if trees is not None:
                    trees.leave(number)

            solved = solve(puzzles, choose, len(puzzles) if player == ALONE else AT_ONCE, ended)
        rating = asdict(explaining_rating(puzzles, solved))
        scores[player] = {
            "solved": sum(solved),
            "bands": bands(puzzles, solved),
            "rating": {end: value if math.isfinite(value) else None for end, value in rating.items()},
            "unsolved": [puzzle.name for puzzle, own in zip(puzzles, solved, strict=True) if not own],
            "seconds": round(time.monotonic() - began, 3),
        }
    return scores


def puzzle_tables(report: Mapping[str, Any]) -> str:
    """For each network a line for each band of ratings, all puzzles, and the rating that explains them."""
    total, seed = report["puzzles"], report["seed"]
    chosen = "evenly spread" if seed is None else f"seed {seed}"
    parts = [f"{total:,} of {counted(report['in_file'], 'puzzle')} of {report['file']} ({chosen})"]
    for network in report["networks"]:
        scores = list(network["players"].values())
        rows: list[Sequence[str]] = [("rating", "puzzles", *network["players"])]
        for same in zip(*(score["bands"] for score in scores), strict=True):
            rows.append(
                (
                    f"{same[0]['low']} to {same[0]['high'] - 1}",
                    f"{same[0]['puzzles']:,}",
                    *(share_text(band["solved"], band["puzzles"]) for band in same),
                )
            )
        rows.append(("all", f"{total:,}", *(share_text(score["solved"], total) for score in scores)))
        ends = []
        for score in scores:
            infinite = "any above" if score["solved"] == total else "any below"
            rating = score["rating"].items()
            ends.append({end: infinite if value is None else f"{value:.0f}" for end, value in rating})
        rows.append(("explained by", "", *(end["elo"] for end in ends)))
        rows.append(("95 % interval", "", *(f"{end['low']} to {end['high']}" for end in ends)))
        shown = table(rows, "l".ljust(len(rows[0]), "r"))
        parts.append("\n".join([f"{network['weights']}: puzzles solved", "", *shown]))
    return "\n\n".join(parts)


def share_text(solved: int, total: int) -> str:
    """'12  40.0%'."""
    return f"{solved:,} {solved / total:6.1%}"
