"""`alphazero eval --epd` and `--puzzles`: chess positions with solutions, tried by networks and searches."""

from __future__ import annotations

import argparse
import json
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
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
    import torch

    from alphazero.measure.puzzles import Choose, Problem
    from alphazero.network.model.resnet import AlphaZeroNet

ALONE = "network alone"
BATCH_SIZE = 256  # of a network alone, unless another is given
AT_ONCE, ALONE_AT_ONCE = 64, 4096  # positions whose trees, or evaluations, share batches
WIDTH = 110


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
    from alphazero.measure.epd import read_epd
    from alphazero.measure.puzzles import read_puzzles
    from alphazero.network.weights.open_network import open_network

    sets: dict[str, Sequence[Problem]] = {}
    report: dict[str, Any] = {}
    if args.puzzles:
        sets[str(args.puzzles)], report["in_file"] = read_puzzles(
            args.puzzles, lambda number: draw(np.arange(number), args.count or number, args.seed).tolist()
        )
        report["seed"] = args.seed
    else:
        sets = {str(path): read_epd(path) for path in args.epd}
    device = device_of(args.device)
    networks = {name: open_network(name, device)[0] for name in args.weights}
    for name, network in networks.items():
        if (game := network.spec.name) != CHESS:
            raise ConfigError(f"{name}: plays {game}; --epd and --puzzles are for {CHESS}")
    report["networks"] = [
        {"weights": name, "sets": results(name, players_of(network, device, args), sets)}
        for name, network in networks.items()
    ]
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print(puzzle_tables(report) if args.puzzles else suite_table(report))
    return 0


@dataclass(frozen=True)
class Solver:
    """One way in which a network plays. leave: is called when a position is over."""

    name: str
    choose: Choose
    at_once: int
    leave: Callable[[int], None]


def players_of(network: AlphaZeroNet, device: torch.device, args: argparse.Namespace) -> list[Solver]:
    """The network's likeliest move, and its search where one is asked for."""
    from alphazero.network.inference.evaluator import NetworkEvaluator
    from alphazero.play.matches.players import engine_trees, network_player
    from alphazero.search.tree_search import SearchLimits

    evaluator = NetworkEvaluator(network, device, args.precision, args.batch_size or BATCH_SIZE)
    likeliest = network_player(evaluator)
    players = [
        Solver(ALONE, lambda lines: likeliest(list(lines.values())), ALONE_AT_ONCE, lambda number: None)
    ]
    if args.simulations is not None:
        limits = SearchLimits(nodes=args.simulations)
        trees = engine_trees(network, device, args.precision, args.batch_size or 0)
        players.append(
            Solver(
                counted(args.simulations, "simulation"),
                lambda lines: [view.moves[0].move for view in trees.search(lines, limits)],
                AT_ONCE,
                trees.leave,
            )
        )
    return players


def results(
    weights: str, players: Sequence[Solver], sets: Mapping[str, Sequence[Problem]]
) -> list[dict[str, Any]]:
    """Of the network's players on each set."""
    return [
        {
            "file": file,
            "positions": len(problems),
            "players": {player.name: score(weights, player, problems) for player in players},
        }
        for file, problems in sets.items()
    ]


def score(weights: str, player: Solver, problems: Sequence[Problem]) -> dict[str, Any]:
    """What the player solved; of puzzles by rating too."""
    from alphazero.measure.puzzles import Puzzle, bands, explaining_rating, failures

    began = time.monotonic()
    with showing(f"{weights}, {player.name}", len(problems), "position") as work:

        def ended(number: int) -> None:
            work.add(1)
            player.leave(number)

        failed = failures(problems, player.choose, player.at_once, ended)
    report: dict[str, Any] = {
        "solved": failed.count(None),
        "unsolved": [
            {"id": problem.name, "move": move}
            for problem, move in zip(problems, failed, strict=True)
            if move is not None
        ],
        "seconds": round(time.monotonic() - began, 3),
    }
    puzzles = [problem for problem in problems if isinstance(problem, Puzzle)]
    if puzzles:
        solved = [move is None for move in failed]
        report["bands"] = bands(puzzles, solved)
        report["rating"] = asdict(explaining_rating(puzzles, solved))
    return report


def suite_table(report: Mapping[str, Any]) -> str:
    """A row for each suite and network, then what was not solved, with the moves made there."""
    rows: list[Sequence[str]] = []
    listed = []
    for of_suite in zip(*(network["sets"] for network in report["networks"]), strict=True):
        for network, suite in zip(report["networks"], of_suite, strict=True):
            players = suite["players"]
            *_, last = players
            rows = rows or [("suite", "weights", "positions", *players)]
            figures = (str(player["solved"]) for player in players.values())
            rows.append((Path(suite["file"]).name, network["weights"], f"{suite['positions']:,}", *figures))
            moves = ", ".join(f"{each['id']} {each['move']}" for each in players[last]["unsolved"])
            text = f"not solved by {network['weights']}, {last}: {moves or 'none'}"
            listed.append(textwrap.fill(text, WIDTH, subsequent_indent="  "))
    return "\n".join([*table(rows, "ll".ljust(len(rows[0]), "r")), "", *listed])


def puzzle_tables(report: Mapping[str, Any]) -> str:
    """For each network a line for each band of ratings, all puzzles, and the rating that explains them."""
    seed = report["seed"]
    chosen = "evenly spread" if seed is None else f"seed {seed}"
    parts = []
    for network in report["networks"]:
        (puzzles,) = network["sets"]
        total, scores = puzzles["positions"], list(puzzles["players"].values())
        rows: list[Sequence[str]] = [("rating", "puzzles", *puzzles["players"])]
        for same in zip(*(score["bands"] for score in scores), strict=True):
            low, high, number = (same[0][name] for name in ("low", "high", "puzzles"))
            shares = (share_text(band["solved"], number) for band in same)
            rows.append((f"{low} to {high - 1}", f"{number:,}", *shares))
        rows.append(("all", f"{total:,}", *(share_text(score["solved"], total) for score in scores)))
        ratings = [score["rating"] for score in scores]
        rows.append(("explained by", "", *(f"{rating['elo']:.0f}" for rating in ratings)))
        ends = (f"{rating['low']:.0f} to {rating['high']:.0f}" for rating in ratings)
        rows.append(("95 % interval", "", *ends))
        head = f"{total:,} of {counted(report['in_file'], 'puzzle')} of {puzzles['file']} ({chosen})"
        shown = table(rows, "l".ljust(len(rows[0]), "r"))
        parts.append("\n".join([head, f"{network['weights']}: puzzles solved", "", *shown]))
    return "\n\n".join(parts)


def share_text(solved: int, total: int) -> str:
    """'12  40.0%'."""
    return f"{solved:,} {solved / total:6.1%}"
