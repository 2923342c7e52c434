"""`alphazero solve --make-early`: the project's own early positions, to tune on."""

from __future__ import annotations

import argparse
from pathlib import Path

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of --make-early."""
    parser.add_argument(
        "--make-early",
        type=Path,
        metavar="FILE",
        help="write early positions with the outcome of every move to FILE, or go on with it up to --count",
    )
    parser.add_argument(
        "--not-in",
        type=lambda text: given_path(text, "--not-in"),
        nargs="+",
        metavar="PATH",
        help="with --make-early: leave out positions of these sets of lines 'moves score'",
    )


def refuse_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that means nothing without --make-early."""
    if args.not_in is not None:
        raise ConfigError("--not-in: only with --make-early")


def run(args: argparse.Namespace) -> int:
    """Solve until the table holds so many; the same seed makes the same table, at once or piece by piece."""
    from alphazero.measure.exact_truth import read_sets
    from alphazero.measure.solved_drawing import Drawing, extend_table, names_of
    from alphazero.show.console import showing

    if args.moves or args.each or args.json:
        raise ConfigError("--make-early: expected no moves and neither --moves nor --json")
    excluded = names_of(read_sets(args.not_in)) if args.not_in else frozenset()
    table = extend_table(
        args.make_early, Drawing(args.seed, excluded), args.count, args.table_mib, args.num_threads or 1
    )
    with showing(f"solving for {args.make_early.name}", args.count, "position") as work:
        work.first = work.done = next(table)  # what an earlier call left is no part of the speed
        for held in table:
            work.done = held
    return 0
