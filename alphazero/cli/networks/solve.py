"""`alphazero solve`: the exact value of a Connect Four position, and what is made by it."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from alphazero.base.errors import ConfigError, GameInputError
from alphazero.cli.flags import check_memory, make_solver
from alphazero.cli.networks import solve_early, solve_targets
from alphazero.settings import flags as numbers

if TYPE_CHECKING:
    import alphazero._core as _core

FULL = "-"
QUIET_S = 2.0  # what takes less is not announced
PROGRESS_INTERVAL_S = 1.0

Result = TypeVar("Result")


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "moves",
        nargs="?",
        default="",
        help="columns 1-7 played from the empty board, as 4453 (none: the empty board)",
    )
    parser.add_argument(
        "--moves", dest="each", action="store_true", help="print the score of each move as well"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--table-mib",
        type=numbers.whole(1, numbers.MOST_COUNT),
        default=512,
        metavar="MIB",
        help="memory of the solver (default: 512 MiB)",
    )
    parser.add_argument(
        "--make-table",
        type=Path,
        metavar="FILE",
        help="write solved positions of six classes to FILE, by stage and difficulty",
    )
    parser.add_argument(
        "--count",
        type=numbers.count,
        default=100,
        metavar="N",
        help="positions of each class for --make-table, of the table for --make-early, of each stretch of "
        "plies for --targets (default: 100)",
    )
    parser.add_argument(
        "--seed",
        type=numbers.seed,
        default=0,
        metavar="N",
        help="seed of the random games that these positions come from, or of the draw for --targets "
        "(default: 0)",
    )
    parser.add_argument(
        "--num-threads",
        type=numbers.threads,
        metavar="N",
        help="with --make-early and --targets: solvers side by side, which share --table-mib (default: 1)",
    )
    solve_early.configure(parser)
    solve_targets.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Solve, print: 0 draw, +k the side to move wins with its k-th last stone, -k it loses so."""
    check_flags(args)
    if args.make_early is not None:
        check_memory(args.table_mib)
        return solve_early.run(args)
    if args.targets is not None:
        check_memory(args.table_mib)
        return solve_targets.run(args)
    if args.make_table is not None:
        return make_table(args)
    line = read_moves(args.moves)
    solver = make_solver(args.table_mib)
    score = watched(solver, lambda: solver.score(line))
    moves = watched(solver, lambda: solver.move_scores(line)) if args.each else []
    named = {str(column): value for column, value in enumerate(moves, start=1) if value != solver.ILLEGAL}
    if args.json:
        print(
            json.dumps({"moves": args.moves, "score": score, **({"move_scores": named} if args.each else {})})
        )
    else:
        print(score)
        for column, value in named.items():
            print(f"column {column}: {value}")
    return 0


def check_flags(args: argparse.Namespace) -> None:
    """Raises ConfigError for two tasks at once, and for a flag of a task that was not asked for."""
    tasks = [name for name in ("make_table", "make_early", "targets") if getattr(args, name) is not None]
    if len(tasks) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in tasks[:2])
        raise ConfigError(f"{first}, {second}: expected one of them")
    if args.num_threads is not None and not {"make_early", "targets"} & set(tasks):
        raise ConfigError("--num-threads: only with --make-early and --targets")
    if "make_early" not in tasks:
        solve_early.refuse_flags(args)
    if "targets" not in tasks:
        solve_targets.refuse_flags(args)


def read_moves(text: str) -> _core.Connect4Line:
    """The position after the moves. Raises GameInputError naming the first that cannot be played."""
    import alphazero._core as _core

    line = _core.Connect4Line()
    for number, column in enumerate(text, start=1):
        if line.outcome().over:
            raise GameInputError(
                f"{text!r}: the game is over after {number - 1} moves; expected a game under way"
            )
        if column not in "1234567" or int(column) - 1 not in line.legal():
            raise GameInputError(
                f"{text!r}, move {number}: {column!r}: expected a column 1-7 that is not full"
            )
        line.push(int(column) - 1)
    if line.outcome().over:
        raise GameInputError(f"{text!r}: the game is over; expected a game under way")
    return line


def watched(solver: _core.Connect4Solver, solve: Callable[[], Result]) -> Result:
    """The result of `solve`, in a thread of its own so that Ctrl-C ends it; what takes long is announced."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(solve()), daemon=True)
    thread.start()
    shows_progress = sys.stderr.isatty()
    start_s = time.monotonic()
    thread.join(QUIET_S)
    if thread.is_alive() and not shows_progress:
        print("solving: with few stones on the board this can take many minutes", file=sys.stderr)
    while thread.is_alive():
        if shows_progress:
            seconds = time.monotonic() - start_s
            line = f"\rsolving: {solver.num_nodes / 1e6:,.0f} million positions in {seconds:.0f} s"
            print(line, end="", file=sys.stderr, flush=True)
        thread.join(PROGRESS_INTERVAL_S)
    if shows_progress and time.monotonic() - start_s > QUIET_S:
        print(file=sys.stderr)
    return results[0]


def make_table(args: argparse.Namespace) -> int:
    """Random games, cut off anywhere; positions in which a move can be wrong, `count` of each class."""
    from tqdm import tqdm

    from alphazero.base.files import replacing
    from alphazero.measure.exact_truth import CLASSES, TABLE_HEAD, class_of, sign

    solver = make_solver(args.table_mib)
    rows: dict[str, list[str]] = {name: [] for name in CLASSES}
    wanted = args.count * len(CLASSES)
    with tqdm(total=wanted, unit="position", file=sys.stderr, leave=False, disable=None) as bar:
        for moves, line in random_positions(args.seed):
            score = solver.score(line)
            rows_of_class = rows.get(class_of(len(moves), score))
            if rows_of_class is None or len(rows_of_class) == args.count:
                continue
            outcomes = {sign(value) for value in solver.move_outcomes(line) if value != solver.ILLEGAL}
            if len(outcomes) < 2:
                continue
            scores = [FULL if value == solver.ILLEGAL else str(value) for value in solver.move_scores(line)]
            rows_of_class.append("\t".join([class_of(len(moves), score), moves, str(score), *scores]))
            bar.update()
            if sum(map(len, rows.values())) == wanted:
                break
    head = [
        TABLE_HEAD,
        f"# made by: alphazero solve --make-table FILE --count {args.count} --seed {args.seed}",
        "# class, moves (columns 1-7), score, score after a stone in column 1 ... 7 for the side that moves",
    ]
    with replacing(args.make_table) as file:
        lines = [*head, *(row for name in CLASSES for row in rows[name])]
        file.write(("\n".join(lines) + "\n").encode("ascii"))
    return 0


def random_positions(seed: int) -> Iterator[tuple[str, _core.Connect4Line]]:
    """Positions of games of random moves, none over, none twice, not even mirrored; without end."""
    import alphazero._core as _core

    generator = random.Random(seed)
    seen: set[int] = set()
    while True:
        line, mirrored, moves = _core.Connect4Line(), _core.Connect4Line(), ""
        for _ in range(generator.randrange(10, 41)):
            move = generator.choice(line.legal())
            line.push(move)
            mirrored.push(6 - move)
            moves += str(move + 1)
            if line.outcome().over:
                break
        key = min(line.key, mirrored.key)
        if not line.outcome().over and key not in seen:
            seen.add(key)
            yield moves, line
