"""How often a player's moves in Connect Four make the outcome worse, by positions that are solved exactly.

They come from Pascal Pons's test sets (`moves score` a line), or from the project's own tables, which also
hold the score or the outcome of every move. None of them enters training.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.files import complete_lines, cut_unfinished_line
from alphazero.games.core_types import Line
from alphazero.games.registry import get_game
from alphazero.play.matches.players import ChooseMoves

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
EARLY_TABLE = OWN_TABLE.with_name("early.txt")
OPENING_TABLE = OWN_TABLE.with_name("opening.txt")
# Names for read_sets; ./own is a file of that name.
OWN_SETS = {"own": OWN_TABLE, "opening": OPENING_TABLE, "early": EARLY_TABLE}
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


@dataclass(frozen=True)
class SolvedPosition:
    """moves: columns 1-7 from the empty board; score: exact, for the side to move (0 draw, +k won, -k lost).

    move_scores: by column, None where it is full; empty where they are not known. A table of outcomes has
    the sign of each score in its place.
    """

    moves: str
    score: int
    move_scores: tuple[int | None, ...] = ()

    def line(self) -> Line:
        """The position with its moves."""
        line = get_game("connect4").core.line()
        for move in self.moves:
            line.push(int(move) - 1)
        return line


@dataclass(frozen=True)
class SolvedSet:
    """Positions of one class."""

    name: str
    positions: tuple[SolvedPosition, ...]


# One column at least is not full.
_MOVES_AND_OUTCOMES = re.compile(r"([1-7]+) ((?=.*[-+=])[-+=.]{7})")
_OUTCOME_LINE = re.compile(r"([1-7]*) ([0-6]) (-1|0|1)")

# A column (from 0) in a position.
SolvedMove: TypeAlias = tuple[SolvedPosition, int]
# The outcomes of such moves in order, each for the side that moves: -1, 0 or 1.
Outcomes: TypeAlias = Callable[[Sequence[SolvedMove]], Iterable[int]]


def sign(score: int) -> int:
    """-1 lost, 0 drawn, 1 won."""
    return (score > 0) - (score < 0)


def read_pons(path: Path) -> SolvedSet:
    """A file of lines `moves score`. Raises DataError naming file and line."""
    positions = []
    for number, text in enumerate(_lines(path), start=1):
        fields = text.split()
        if len(fields) != 2 or not fields[1].lstrip("-").isdecimal():
            raise DataError(f"{path}:{number}: {text!r}: expected 'moves score', as '44455554221 2'")
        positions.append(_checked(path, number, SolvedPosition(fields[0], int(fields[1]))))
    return SolvedSet(_PONS_NAMES.get(path.name, path.name), tuple(positions))


def read_table(path: Path = OWN_TABLE) -> list[SolvedSet]:
    """The project's own table: lines `class moves score score-of-column-1 ... 7`, '-' for a full column.

    Raises DataError naming file and line.
    """
    sets: dict[str, list[SolvedPosition]] = {}
    for number, text in enumerate(_lines(path), start=1):
        if text.startswith("#"):
            continue
        fields = text.split("\t")
        try:
            name, moves, score, *values = fields
            scores = tuple(None if value == "-" else int(value) for value in values)
            position = SolvedPosition(moves, int(score), scores)
        except ValueError:
            scores = ()
        if len(scores) != COLUMNS:
            raise DataError(
                f"{path}:{number}: {text!r}: expected class, moves, score and seven scores, by tabs"
            )
        sets.setdefault(name, []).append(_checked(path, number, position))
    return [SolvedSet(name, tuple(positions)) for name, positions in sets.items()]


def read_outcomes(path: Path = EARLY_TABLE) -> SolvedSet:
    """A table of lines `moves outcomes`: for each column a sign of OUTCOME_SIGNS, or FULL.

    Raises DataError naming file and line.
    """
    values = {sign_of: value for value, sign_of in OUTCOME_SIGNS.items()}
    positions = []
    for number, text in enumerate(_lines(path), start=1):
        if text.startswith("#"):
            continue
        match = _MOVES_AND_OUTCOMES.fullmatch(text)
        if not match:
            raise DataError(f"{path}:{number}: {text!r}: expected moves and outcomes, as '4432 --+-=--'")
        outcomes = tuple(values.get(sign_of) for sign_of in match[2])
        best = max(value for value in outcomes if value is not None)
        position = _checked(path, number, SolvedPosition(match[1], best, outcomes))
        if {column for column, value in enumerate(outcomes) if value is not None} != set(
            position.line().legal()
        ):
            raise DataError(f"{path}:{number}: {text!r}: expected {FULL!r} for the full columns and no other")
        positions.append(position)
    return SolvedSet(path.stem, tuple(positions))


def read_sets(paths: Sequence[Path] = ()) -> list[SolvedSet]:
    """Sets of Pons (files, or directories of Test_L*_R* files) and tables of our own; no path: the own table.

    The names of OWN_SETS are its tables. In the order of CLASSES, then as given. Raises DataError.
    """
    sets: list[SolvedSet] = []
    for path in [OWN_SETS.get(str(path), path) for path in paths] or [OWN_TABLE]:
        if path.is_dir() and not list(path.glob("Test_L*_R*")):
            raise DataError(f"{path}: no files named as Pons's sets are, Test_L*_R*")
        for file in sorted(path.glob("Test_L*_R*")) if path.is_dir() else [path]:
            head = _lines(file)[:1]
            if head == [OUTCOMES_HEAD]:
                sets.append(read_outcomes(file))
            else:
                sets += read_table(file) if head == [TABLE_HEAD] else [read_pons(file)]
    order = {name: place for place, name in enumerate(CLASSES)}
    return sorted(sets, key=lambda entry: order.get(entry.name, len(order)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def _checked(path: Path, number: int, position: SolvedPosition) -> SolvedPosition:
    try:
        if not position.line().outcome().over:
            return position
        fault = "the game is over"
    except (ValueError, OverflowError) as error:
        fault = str(error)
    raise DataError(
        f"{path}:{number}: {position.moves!r}: {fault}; expected columns 1-7 of a game in progress"
    )


def table_outcomes(questions: Sequence[SolvedMove]) -> Iterator[int]:
    """From the scores of the positions' moves."""
    for position, column in questions:
        score = position.move_scores[column]
        assert score is not None, "the move was legal"
        yield sign(score)


class SolverOutcomes:
    """Solves moves and caches their outcomes in a file of lines `moves column outcome`.

    num_threads solvers share table_mib. Raises DataError for another file.
    """

    def __init__(self, cache: Path, table_mib: int = 512, num_threads: int = 1) -> None:
        self._cache = cache
        self._table_mib = table_mib
        self._num_threads = num_threads
        self._known: dict[tuple[str, int], int] = {}
        cut_unfinished_line(cache)
        for number, text in enumerate(complete_lines(cache), start=1):
            match = _OUTCOME_LINE.fullmatch(text)
            if not match:
                raise DataError(
                    f"{cache}:{number}: {text!r}: expected 'moves column outcome'; remove the file"
                )
            self._known[match[1], int(match[2])] = int(match[3])

    def __call__(self, questions: Sequence[SolvedMove]) -> Iterator[int]:
        """Their outcomes, -1, 0 or 1, in order."""
        keys = [(position.moves, column) for position, column in questions]
        to_solve = {
            key: question for key, question in zip(keys, questions, strict=True) if key not in self._known
        }
        outcomes = solve_in_threads(solved_outcome, to_solve.values(), self._table_mib, self._num_threads)
        with closing(outcomes):
            solved = zip(to_solve, outcomes, strict=True)
            for key in keys:
                while key not in self._known:
                    self._remember(*next(solved))
                yield self._known[key]

    def _remember(self, key: tuple[str, int], outcome: int) -> None:
        self._known[key] = outcome
        self._cache.parent.mkdir(parents=True, exist_ok=True)
        with self._cache.open("a", encoding="ascii") as file:
            file.write(f"{key[0]} {key[1]} {outcome}\n")


def solved_outcome(solver: _core.Connect4Solver, question: SolvedMove) -> int:
    """The sign of the exact value after the move, for the side that makes it."""
    position, column = question
    line = cast(_core.Connect4Line, position.line())
    line.push(column)
    if line.outcome().over:
        return -line.outcome().value
    return -int(solver.outcome(line))


def find_errors(positions: Sequence[SolvedPosition], player: ChooseMoves, outcomes: Outcomes) -> list[bool]:
    """Whether the player's move in each position has a worse outcome than the position; never in a lost one.

    The player is not asked where all moves are known to be equally good.
    """
    asked = [place for place, position in enumerate(positions) if may_err(position)]
    moves = player([positions[place].line() for place in asked]) if asked else []
    judged = [(place, move) for place, move in zip(asked, moves, strict=True) if positions[place].score >= 0]
    questions = [(positions[place], move) for place, move in judged]
    errs = [False] * len(positions)
    for (place, _), outcome in zip(judged, outcomes(questions), strict=True):
        errs[place] = outcome < sign(positions[place].score)
    return errs


def may_err(position: SolvedPosition) -> bool:
    """Whether an error is possible, as far as the moves are known."""
    known = [sign(score) for score in position.move_scores if score is not None]
    return not known or min(known) < sign(position.score)


def count_errors(positions: Sequence[SolvedPosition], player: ChooseMoves, outcomes: Outcomes) -> int:
    """Positions in which the player errs (see find_errors)."""
    return sum(find_errors(positions, player, outcomes))


def count_without_errors(positions: Sequence[SolvedPosition], outcomes: Outcomes) -> int:
    """Positions in which no move is an error, as all have the position's outcome."""
    questions = [
        (position, column)
        for position in positions
        if position.score >= 0
        for column in position.line().legal()
    ]
    with_errors = {
        position.moves
        for (position, _), outcome in zip(questions, outcomes(questions), strict=True)
        if outcome < sign(position.score)
    }
    return sum(position.moves not in with_errors for position in positions)


def move_errors(sets: Sequence[SolvedSet], player: ChooseMoves) -> dict[str, float]:
    """Share of wrong moves in the own table by class, and `move_error` over all positions."""
    errors = {entry.name: count_errors(entry.positions, player, table_outcomes) for entry in sets}
    figures = {
        f"move_error_{entry.name.replace('-', '_')}": errors[entry.name] / len(entry.positions)
        for entry in sets
    }
    total = sum(len(entry.positions) for entry in sets)
    return {"move_error": sum(errors.values()) / total, **figures}
