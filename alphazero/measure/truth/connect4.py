"""Connect Four's solved positions: files of them, and the outcomes of moves by the solver.

They come from Pascal Pons's test sets (`moves score` a line), or from the project's own tables, which also
hold the score or the outcome of every move. None of them enters training.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar, cast

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.files import open_regular
from alphazero.games.core_types import Line
from alphazero.measure.truth.positions import ExactPosition, SolvedMove, SolvedSet

ITEMS_AHEAD = 8  # a thread

Item = TypeVar("Item")
Found = TypeVar("Found")


def solve_in_threads(
    solve: Callable[[_core.Connect4Solver, Item], Found],
    items: Iterable[Item],
    table_mib: int,
    num_threads: int,
) -> Generator[Found]:
    """`solve` of each item in order, by a solver in each thread, which share table_mib.

    ITEMS_AHEAD items a thread are taken ahead, so they may be endless. Closing the iterator cancels those not
    yet started.
    """
    solvers = threading.local()

    def solve_one(item: Item) -> Found:
        if not hasattr(solvers, "own"):
            solvers.own = _core.Connect4Solver(max(1, table_mib // num_threads))
        return solve(solvers.own, item)

    with ThreadPoolExecutor(num_threads) as pool:
        try:
            waiting: deque[Future[Found]] = deque()
            for item in items:
                waiting.append(pool.submit(solve_one, item))
                if len(waiting) == ITEMS_AHEAD * num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


OWN_TABLE = Path(__file__).resolve().parents[2] / "assets" / "connect4" / "positions.tsv"
# Names for read_sets; ./own is a file of that name.
OWN_SETS = {
    "own": OWN_TABLE,
    "opening": OWN_TABLE.with_name("opening.txt"),
    "early": OWN_TABLE.with_name("early.txt"),
}
COLUMNS = 7
TABLE_HEAD = "# Connect Four positions from random games with the exact score of every move"
OUTCOMES_HEAD = "# Connect Four: early positions with the outcome of every move"
OUTCOME_SIGNS = {1: "+", 0: "=", -1: "-"}
FULL = "."
# Classes as Pons's: stones on the board (begin has at most 14, end more than 28), then plies to the end with
# best play: easy less than 14, hard 28 or more (his sets themselves count 14 as easy and 28 as medium).
_PONS_NAMES = {
    "Test_L3_R1": "end-easy",
    "Test_L2_R1": "middle-easy",
    "Test_L2_R2": "middle-medium",
    "Test_L1_R1": "begin-easy",
    "Test_L1_R2": "begin-medium",
    "Test_L1_R3": "begin-hard",
}
CLASSES = tuple(_PONS_NAMES.values())
# One column at least is not full.
_MOVES_AND_OUTCOMES = re.compile(r"([1-7]+) ((?=.*[-+=])[-+=.]{7})")


def line_of(moves: str) -> _core.Connect4Line:
    """The position after columns 1-7 from the empty board. Raises ValueError."""
    line = _core.Connect4Line()
    for move in moves:
        line.push_text(move)
    return line


def read_sets(paths: Sequence[Path] = ()) -> list[SolvedSet]:
    """Sets of Pons (files, or directories of Test_L*_R* files) and our tables; no path: the own table.

    The names of OWN_SETS are its tables. In the order of CLASSES, then as given. Raises DataError.
    """
    sets: list[SolvedSet] = []
    for path in [OWN_SETS.get(str(path), path) for path in paths] or [OWN_TABLE]:
        if path.is_dir() and not list(path.glob("Test_L*_R*")):
            raise DataError(f"{path}: no files named as Pons's sets are, Test_L*_R*")
        for file in sorted(path.glob("Test_L*_R*")) if path.is_dir() else [path]:
            sets += read_file(file)
    order = {name: number for number, name in enumerate(CLASSES)}
    return sorted(sets, key=lambda entry: order.get(entry.name, len(order)))


def read_file(path: Path) -> list[SolvedSet]:
    """The sets of one file. Raises DataError naming file, line and value.

    Its lines are, under TABLE_HEAD, `class moves score score-of-column-1 ... 7` by tabs, '-' for a full
    column; under OUTCOMES_HEAD `moves outcomes`, for each column a sign of OUTCOME_SIGNS or FULL; else `moves
    score`.
    """
    try:
        with open_regular(path) as file:
            lines = file.read().decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    read = {TABLE_HEAD: _row_of_table, OUTCOMES_HEAD: _row_of_outcomes}.get("".join(lines[:1]), _row_of_pons)
    sets: dict[str, list[ExactPosition]] = {}
    for number, text in enumerate(lines, start=1):
        if text.startswith("#") and read is not _row_of_pons:
            continue
        name = _PONS_NAMES.get(path.name, path.name) if read is _row_of_pons else path.stem
        try:
            name, moves, score, scores = read(name, text)
            line = line_of(moves)
            if line.outcome().over:
                raise ValueError("the game is over; expected a game in progress")
            known = {column: value for column, value in enumerate(scores) if value is not None}
            if scores and [*known] != line.legal():
                raise ValueError("expected scores of all but the full columns")
        except ValueError as error:
            raise DataError(f"{path}:{number}: {text!r}: {error}") from error
        sets.setdefault(name, []).append(ExactPosition(cast(Line, line), score, known, moves))
    return [SolvedSet(name, tuple(positions)) for name, positions in sets.items()]


_Row = tuple[str, str, int, list[int | None]]  # class, moves, score, scores of the columns


def _row_of_pons(name: str, text: str) -> _Row:
    match = re.fullmatch(r"(\S+)\s+(-?\d+)", text.strip())
    if not match:
        raise ValueError("expected 'moves score', as '44455554221 2'")
    return name, match[1], int(match[2]), []


def _row_of_table(_: str, text: str) -> _Row:
    match = re.fullmatch(r"([^\t]+)\t(\d+)\t(-?\d+)" + r"\t(-|-?\d+)" * COLUMNS, text)
    if not match:
        raise ValueError("expected class, moves, score and seven scores, by tabs")
    name, moves, score, *values = match.groups()
    return name, moves, int(score), [None if value == "-" else int(value) for value in values]


def _row_of_outcomes(name: str, text: str) -> _Row:
    match = _MOVES_AND_OUTCOMES.fullmatch(text)
    if not match:
        raise ValueError("expected moves and outcomes, as '4432 --+-=--'")
    values = {sign_of: value for value, sign_of in OUTCOME_SIGNS.items()}
    outcomes = [values.get(sign_of) for sign_of in match[2]]
    return name, match[1], max(value for value in outcomes if value is not None), outcomes


class SolverOutcomes:
    """Solves moves by num_threads solvers, which share table_mib, and remembers their outcomes."""

    def __init__(self, table_mib: int = 512, num_threads: int = 1) -> None:
        self._table_mib, self._num_threads = table_mib, num_threads
        self._known: dict[tuple[str, int], int] = {}

    def __call__(self, questions: Sequence[SolvedMove]) -> list[int]:
        """Their outcomes, -1, 0 or 1, in order."""
        unknown = [
            (position, column)
            for position, column in questions
            if (position.moves, column) not in self._known
        ]
        with closing(solve_in_threads(solved_outcome, unknown, self._table_mib, self._num_threads)) as found:
            for (position, column), outcome in zip(unknown, found, strict=True):
                self._known[position.moves, column] = outcome
        return [self._known[position.moves, column] for position, column in questions]


def solved_outcome(solver: _core.Connect4Solver, question: SolvedMove) -> int:
    """The sign of the exact value after the move, for the side that makes it."""
    position, column = question
    line = cast(_core.Connect4Line, position.line.copy())
    line.push(column)
    outcome = line.outcome()
    return -outcome.value if outcome.over else -int(solver.outcome(line))
