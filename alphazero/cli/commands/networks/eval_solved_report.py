"""What `alphazero eval --solved` tells: errors set by set, networks in pairs, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from alphazero.text import table

if TYPE_CHECKING:
    from alphazero.evaluation.solved_pairs import PairedErrors


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
