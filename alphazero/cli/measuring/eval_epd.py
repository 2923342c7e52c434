"""`alphazero eval --epd`: test suites solved by networks alone and by their searches."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from alphazero.base.text import table
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
    from alphazero.base.log import Work
    from alphazero.measure.suites.epd import EpdAnswer, EpdPosition

WIDTH = 110
NO_BREAK = "\N{NO-BREAK SPACE}"
# Answers by network, suite and player.
Results: TypeAlias = "dict[str, dict[str, dict[str, list[EpdAnswer]]]]"


def run(args: argparse.Namespace) -> int:
    """Try the positions of each file by each network, print a table and the unsolved ones, or JSON."""
    from alphazero.measure.suites.epd import answers_alone, answers_of_search, read_epd

    suites = {str(path): read_epd(path) for path in args.epd}
    simulations = (args.simulations or 0) * sum(map(len, suites.values()))
    results: Results = {}
    for name, network in open_networks(args).items():
        results[name] = {}
        alone = player_alone(args, network)
        trees = search_trees(args, network, Meter()) if args.simulations is not None else None
        with showing(name, simulations, "simulation") as work:

            def more(number: int, work: Work = work) -> None:
                work.done += number

            for suite, positions in suites.items():
                answers = {ALONE: answers_alone(positions, alone)}
                if trees is not None:
                    searched = answers_of_search(positions, trees, args.simulations, more)
                    answers[search_name(args)] = searched
                results[name][suite] = answers
    print(to_json(suites, results) if args.json else to_table(args, suites, results))
    return 0


def to_table(args: argparse.Namespace, suites: dict[str, list[EpdPosition]], results: Results) -> str:
    """A row for each suite and network, then what was not solved."""
    from alphazero.measure.suites.epd import steps_to

    steps = [] if args.simulations is None else steps_to(args.simulations)
    columns = ("suite", "weights", "positions", ALONE, *(f"within {step:,}" for step in steps))
    rows: list[Sequence[str]] = [columns]
    unsolved = []
    for suite, positions in suites.items():
        for name, of_suites in results.items():
            answers = of_suites[suite]
            player, last = list(answers.items())[-1]
            nodes = [answer.within for answer in last if answer.within is not None]
            within = [sum(each <= step for each in nodes) for step in steps]
            alone = sum(answer.solved for answer in answers[ALONE])
            rows.append((Path(suite).name, name, f"{len(positions):,}", *map(str, (alone, *within))))
            unsolved.append(f"not solved by {name}, {player}: {failures(positions, last)}")
    notes = ["", f"within n: right from n nodes to the end of {search_name(args)}"] if steps else []
    wrapped = (textwrap.fill(text, WIDTH, subsequent_indent="  ") for text in unsolved)
    listed = [text.replace(NO_BREAK, " ") for text in wrapped]
    return "\n".join([*table(rows, "ll".ljust(len(columns), "r")), *notes, "", *listed])


def failures(positions: Sequence[EpdPosition], answers: Sequence[EpdAnswer]) -> str:
    """The names of positions that are not solved, with the moves made there."""
    failed = (
        f"{position.name}{NO_BREAK}{answer.move}"
        for position, answer in zip(positions, answers, strict=True)
        if not answer.solved
    )
    return ", ".join(failed) or "none"


def to_json(suites: dict[str, list[EpdPosition]], results: Results) -> str:
    """Every answer, by network, suite and position."""

    def figures(suite: str, answers: dict[str, list[EpdAnswer]]) -> dict[str, Any]:
        solved = {player: sum(answer.solved for answer in each) for player, each in answers.items()}
        positions = [
            {
                "id": position.name,
                "fen": position.fen,
                "wanted": position.wanted,
                "answers": {player: asdict(each[number]) for player, each in answers.items()},
            }
            for number, position in enumerate(suites[suite])
        ]
        return {"suite": suite, "solved": solved, "positions": positions}

    networks = [
        {"weights": name, "suites": [figures(suite, answers) for suite, answers in of_suites.items()]}
        for name, of_suites in results.items()
    ]
    return json.dumps({"networks": networks}, indent=2)
