"""`alphazero eval --puzzles`: Lichess's puzzles solved by networks alone and by their searches, by rating."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from alphazero.base.text import counted, table
from alphazero.cli.measuring.eval_suites import (
    ALONE,
    open_networks,
    player_alone,
    search_name,
    search_trees,
)
from alphazero.search.metered import Meter
from alphazero.show.console import showing

if TYPE_CHECKING:
    from alphazero.measure.rating import Rating
    from alphazero.measure.suites.puzzles import Puzzle
    from alphazero.network.model.resnet import AlphaZeroNet

AT_ONCE = 64  # puzzles whose trees share batches
# Some of these numbers, ascending: as many as given, evenly spread or by a seed.
Draw: TypeAlias = Callable[[npt.NDArray[np.int64], int, int | None], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class PuzzleScore:
    """What one player solved. evaluations: of positions by its search. seconds: it took."""

    solved: list[bool]
    rating: Rating
    evaluations: int
    seconds: float


def run(args: argparse.Namespace, draw: Draw) -> int:
    """Try the same puzzles by each network, print tables by rating, or JSON."""
    from alphazero.measure.suites.puzzles import read_puzzles

    in_file = 0

    def choose(number: int) -> list[int]:
        nonlocal in_file
        in_file = number
        chosen: list[int] = draw(np.arange(number, dtype=np.int64), args.count or number, args.seed).tolist()
        return chosen

    puzzles = read_puzzles(args.puzzles, choose)
    results = {name: scores_of(args, name, network, puzzles) for name, network in open_networks(args).items()}
    if args.json:
        print(to_json(args, in_file, puzzles, results))
        return 0
    chosen = "evenly spread" if args.seed is None else f"seed {args.seed}"
    head = f"{len(puzzles):,} of {counted(in_file, 'puzzle')} of {args.puzzles} ({chosen})"
    print("\n\n".join([head, *(to_table(name, puzzles, scores) for name, scores in results.items())]))
    return 0


def scores_of(
    args: argparse.Namespace, name: str, network: AlphaZeroNet, puzzles: Sequence[Puzzle]
) -> dict[str, PuzzleScore]:
    """Of the network alone, and of its search where one is asked for."""
    from alphazero.measure.suites.puzzles import explaining_rating, solve
    from alphazero.play.matches.players import Player, decisions_of, engine_decisions

    meter = Meter()  # of the search
    players = [Player(ALONE, decide=decisions_of(player_alone(args, network)))]
    if args.simulations is not None:
        trees = search_trees(args, network, meter)
        decide = engine_decisions(trees, args.simulations)
        players.append(Player(search_name(args), decide=decide, leave=trees.leave))
    scores = {}
    for player in players:
        began = time.monotonic()
        at_once = len(puzzles) if player.name == ALONE else AT_ONCE
        with showing(f"{name}, {player.name}", len(puzzles), "puzzle") as work:

            def ended() -> None:
                work.done += 1

            solved = solve(puzzles, player, at_once, ended)
        scores[player.name] = PuzzleScore(
            solved,
            explaining_rating(puzzles, solved),
            0 if player.name == ALONE else meter.positions,
            time.monotonic() - began,
        )
    return scores


def to_table(name: str, puzzles: Sequence[Puzzle], scores: dict[str, PuzzleScore]) -> str:
    """A table with a line for each band of ratings, all puzzles, and the rating that explains them."""
    from alphazero.measure.suites.puzzles import bands

    by_player = [bands(puzzles, score.solved) for score in scores.values()]
    rows: list[Sequence[str]] = [("rating", "puzzles", *scores)]
    for same in zip(*by_player, strict=True):
        first = same[0]
        shares = (f"{band.solved:,} {band.solved / band.puzzles:6.1%}" for band in same)
        rows.append((f"{first.low} to {first.high - 1}", f"{first.puzzles:,}", *shares))
    total = [(sum(score.solved), sum(score.solved) / len(puzzles)) for score in scores.values()]
    rows.append(("all", f"{len(puzzles):,}", *(f"{number:,} {share:6.1%}" for number, share in total)))
    rows.append(("explained by", "", *(rating_text(score.rating.elo) for score in scores.values())))
    intervals = (
        f"{rating_text(score.rating.low)} to {rating_text(score.rating.high)}" for score in scores.values()
    )
    rows.append(("95 % interval", "", *intervals))
    return "\n".join([f"{name}: puzzles solved", "", *table(rows, "l".ljust(len(rows[0]), "r"))])


def rating_text(rating: float) -> str:
    """'1512'; an infinite one in words."""
    return f"{rating:.0f}" if math.isfinite(rating) else "any above" if rating > 0 else "any below"


def to_json(
    args: argparse.Namespace,
    in_file: int,
    puzzles: Sequence[Puzzle],
    results: dict[str, dict[str, PuzzleScore]],
) -> str:
    """By network and player; an infinite rating is null."""
    from alphazero.measure.suites.puzzles import bands

    def figures(score: PuzzleScore) -> dict[str, Any]:
        rating = {key: value if math.isfinite(value) else None for key, value in asdict(score.rating).items()}
        return {
            "solved": sum(score.solved),
            "bands": [asdict(band) for band in bands(puzzles, score.solved)],
            "rating": rating,
            "unsolved": [puzzle.name for puzzle, own in zip(puzzles, score.solved, strict=True) if not own],
            "evaluations": score.evaluations,
            "seconds": round(score.seconds, 3),
        }

    networks = [
        {"weights": name, "players": {player: figures(score) for player, score in scores.items()}}
        for name, scores in results.items()
    ]
    about = {"puzzles": len(puzzles), "in_file": in_file, "file": str(args.puzzles), "seed": args.seed}
    return json.dumps({**about, "networks": networks}, indent=2)
