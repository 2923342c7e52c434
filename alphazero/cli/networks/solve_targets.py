"""`alphazero solve --targets`: how far what self-play left to train on is from the exact truth."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from alphazero.base.errors import ConfigError
from alphazero.base.files import given_path
from alphazero.base.text import counted, table
from alphazero.settings import flags as numbers

if TYPE_CHECKING:
    from alphazero.measure.solved_targets import TargetFigures

NEWEST_GAMES = 5000


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of --targets."""
    parser.add_argument(
        "--targets",
        type=lambda text: given_path(text, "--targets"),
        metavar="STORE",
        help="compare the targets that self-play stored, as in runs/NAME/games, with the exact outcomes",
    )
    parser.add_argument(
        "--newest",
        type=numbers.count,
        metavar="N",
        help=f"with --targets: draw the positions from the newest N games (default: {NEWEST_GAMES})",
    )


def refuse_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that means nothing without --targets."""
    if args.newest is not None:
        raise ConfigError("--newest: only with --targets")


def run(args: argparse.Namespace) -> int:
    """Solve the positions drawn, print figures for each stretch of plies."""
    from alphazero.data.store.store import GameStore
    from alphazero.measure.exact_truth import solve_in_threads
    from alphazero.measure.solved_targets import BANDS, draw_positions, figures_of, solved_target
    from alphazero.show.console import showing

    if args.moves or args.each:
        raise ConfigError("--targets: expected no moves and no --moves")
    store = GameStore.open(args.targets)
    store.verify()
    newest = min(args.newest or NEWEST_GAMES, store.num_games)
    drawn = draw_positions(store, newest, args.count, args.seed)
    positions = [position for of_band in drawn for position in of_band]
    targets = []
    with showing("solving", len(positions), "position") as work:
        for target in solve_in_threads(solved_target, positions, args.table_mib, args.num_threads or 1):
            targets.append(target)
            work.done += 1
    in_order = iter(targets)
    rows = [
        figures_of(band, [next(in_order) for _ in of_band])
        for band, of_band in zip(BANDS, drawn, strict=True)
        if of_band
    ]
    print(to_json(rows) if args.json else to_text(args, newest, rows))
    return 0


def to_text(args: argparse.Namespace, newest: int, rows: Sequence[TargetFigures]) -> str:
    """For people: a table of the values and one of the policies."""
    return "\n".join(
        [
            f"{args.targets}: {counted(sum(row.positions for row in rows), 'position')} of the newest "
            f"{counted(newest, 'game')}, beside the exact outcome (1 won, 0 drawn, -1 lost)",
            "",
            "values: mean squared error of each target",
            *table(value_lines(rows), "lrrrrrrr"),
            "",
            "policies, where a move can err: share of the policy on moves that err, how often the likeliest",
            "move and the move played err, and moves drawn from the policy at a lower temperature",
            *table(policy_lines(rows), "lrrrr" + "r" * len(rows[0].drawn_errs)),
        ]
    )


def value_lines(rows: Sequence[TargetFigures]) -> list[Sequence[str]]:
    """With their head."""
    lines: list[Sequence[str]] = [
        ("plies", "positions", "drawn", "wrong results", "result", "half and half", "search", "network")
    ]
    for row in rows:
        errors = [row.value_errors[name] for name in ("result", "half", "search", "network")]
        lines.append(
            (plies(row), str(row.positions), share(row.drawn), share(row.wrong_results), *map(number, errors))
        )
    return lines


def policy_lines(rows: Sequence[TargetFigures]) -> list[Sequence[str]]:
    """With their head."""
    temperatures = [f"at {temperature:g}" for temperature in rows[0].drawn_errs]
    lines: list[Sequence[str]] = [
        ("plies", "positions", "policy", "likeliest", "played", *temperatures),
    ]
    for row in rows:
        shares = [row.policy_on_errors, row.likeliest_errs, row.played_errs, *row.drawn_errs.values()]
        lines.append((plies(row), str(row.with_errors), *map(share, shares)))
    return lines


def plies(row: TargetFigures) -> str:
    """Of the positions."""
    return f"{row.first_ply}-{row.last_ply}"


def share(value: float) -> str:
    """In per cent."""
    return "-" if math.isnan(value) else f"{value:.1%}"


def number(value: float) -> str:
    """With three decimals."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def to_json(rows: Sequence[TargetFigures]) -> str:
    """For programs; null where there is nothing to tell."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {str(name): plain(entry) for name, entry in value.items()}
        return None if isinstance(value, float) and math.isnan(value) else value

    return json.dumps({"plies": [plain(asdict(row)) for row in rows]}, indent=2)
