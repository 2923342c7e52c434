"""Connect Four's solved positions: files of them, and the outcomes of moves by the solver.

They come from Pascal Pons's test sets (`moves score` a line), or from the project's own tables, which also
hold the score or the outcome of every move. None of them enters training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar, cast

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.files import open_regular
from alphazero.games.core_types import Line
from alphazero.measure.truth.positions import ExactPosition, SolvedMove, SolvedSet

Item = TypeVar("Item")
Found = TypeVar("Found")


def solve_in_threads(
    solve: Callable[[_core.Connect4Solver, Item], Found],
    items: Iterable[Item],
    table_mib: int,
    num_threads: int,
) -> Generator[Found]:
    """`solve` of each item in order, by a solver in each thread, which share table_mib.

    Closing the iterator cancels those not yet started.
    """
    solvers = threading.local()

    def solve_one(item: Item) -> Found:
        if not hasattr(solvers, "own"):
            solvers.own = _core.Connect4Solver(max(1, table_mib // num_threads))
        return solve(solvers.own, item)

    with ThreadPoolExecutor(num_threads) as pool:
        yield from pool.map(solve_one, items)


OWN_TABLE = Path(__file__).resolve().parents[2] / "assets" / "connect4" / "positions.tsv"
# Names for read_sets; ./own is a file of that name.
OWN_SETS = {
    "own": OWN_TABLE,
    "opening": OWN_TABLE.with_name("opening.txt"),
    "early": OWN_TABLE.with_name("early.txt"),
}
COLUMNS = 7
OUTCOMES = {"+": 1, "=": 0, "-": -1, ".": None}  # won, drawn, lost by that move; a full column


def line_of(moves: str) -> _core.Connect4Line:
    """The position after columns 1-7 from the empty board. Raises ValueError."""
    line = _core.Connect4Line()
    for move in moves:
        line.push_text(move)
    return line


def read_sets(paths: Sequence[Path] = ()) -> list[SolvedSet]:
    """Files of positions, or directories of Pons's Test_L*_R* files; no path: the own table.

    The names of OWN_SETS are its tables. Raises DataError.
    """
    sets: list[SolvedSet] = []
    for path in [OWN_SETS.get(str(path), path) for path in paths] or [OWN_TABLE]:
        if path.is_dir() and not list(path.glob("Test_L*_R*")):
            raise DataError(f"{path}: no files named as Pons's sets are, Test_L*_R*")
        for file in sorted(path.glob("Test_L*_R*")) if path.is_dir() else [path]:
            sets += read_file(file)
    return sets


def read_file(path: Path) -> list[SolvedSet]:
    """The sets of one file, as _row reads its lines. Raises DataError naming file, line and value."""
    try:
        with open_regular(path) as file:
            lines = file.read().decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    sets: dict[str, list[ExactPosition]] = {}
    for number, text in enumerate(lines, start=1):
        if text.startswith("#"):
            continue
        try:
            name, moves, score, scores = _row(text)
            line = line_of(moves)
            if line.outcome().over:
                raise ValueError("the game is over; expected a game in progress")
            known = {column: value for column, value in enumerate(scores) if value is not None}
            if scores and [*known] != line.legal():
                raise ValueError("expected scores of all but the full columns")
        except ValueError as error:
            raise DataError(f"{path}:{number}: {text!r}: {error}") from error
        sets.setdefault(name or path.stem, []).append(ExactPosition(cast(Line, line), score, known, moves))
    return [SolvedSet(name, tuple(positions)) for name, positions in sets.items()]


def _row(text: str) -> tuple[str, str, int, list[int | None]]:
    """Class, moves, score, and the scores of the columns, which Pons's sets do not have.

    A line is `moves score`, `moves outcomes`, or `class moves score scores-of-columns`, '-' for a full one.
    """
    match text.split():
        case [name, moves, score, *values] if len(values) == COLUMNS:
            return name, moves, int(score), [None if value == "-" else int(value) for value in values]
        case [moves, signs] if len(signs) == COLUMNS and set(OUTCOMES).issuperset(signs):
            outcomes = [OUTCOMES[sign] for sign in signs]
            return "", moves, max((value for value in outcomes if value is not None), default=0), outcomes
        case [moves, score]:
            return "", moves, int(score), []
    raise ValueError("expected 'moves score', as '44455554221 2', or 'moves outcomes', as '4432 --+-=--'")


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
        with closing(solve_in_threads(solved_outcome, unknown, self._table_mib, self._num_threads)) as solved:
            for (position, column), outcome in zip(unknown, solved, strict=True):
                self._known[position.moves, column] = outcome
        return [self._known[position.moves, column] for position, column in questions]


def solved_outcome(solver: _core.Connect4Solver, question: SolvedMove) -> int:
    """The sign of the exact value after the move, for the side that makes it."""
    position, column = question
    line = cast(_core.Connect4Line, position.line.copy())
    line.push(column)
    outcome = line.outcome()
    return -outcome.value if outcome.over else -int(solver.outcome(line))
