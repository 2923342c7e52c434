"""Lichess's puzzles, solved by a player move by move as test suites are, and the rating that explains it.

A puzzle begins with the opponent's move; then each move of the solver must be the solution's, or mate: "any
move that checkmates should win the puzzle" (https://database.lichess.org/#puzzles). The puzzle's rating is
that of an opponent, who wins where the solver fails.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias

from alphazero.base.errors import DataError, GameInputError
from alphazero.base.text import quoted, reason, shortened
from alphazero.data.formats.pgn import text_lines
from alphazero.games.core_types import Line
from alphazero.games.notation import move_text
from alphazero.games.registry import make_line
from alphazero.measure.rating import Rating, posterior

WHAT = "puzzles as CSV"
COLUMNS = ("FEN", "Moves", "Rating")
# Of a file without a line of names, by their number.
UNNAMED = {3: COLUMNS, 9: ("PuzzleId", *COLUMNS), 10: ("PuzzleId", *COLUMNS)}
BAND = 200  # of ratings, in a table
# The moves at the ends of lines, by the puzzles' numbers.
Choose: TypeAlias = Callable[[Mapping[int, Line]], Sequence[int]]


@dataclass(frozen=True)
class Puzzle:
    """name: its id, else file and line. moves: as UCI, the opponent's first, by turns."""

    name: str
    fen: str
    moves: tuple[str, ...]
    rating: int

    def line(self) -> Line:
        """After the opponent's first move."""
        line = make_line("chess", self.fen)
        line.push_text(self.moves[0])
        return line

    def judge(self, line: Line, move: int) -> bool | None:
        """Whether the move at the end of the line solves the puzzle or fails; None where it continues.

        Then the line has the move and the opponent's answer.
        """
        ply = line.num_plies
        is_expected = move == line.text_to_move(self.moves[ply])
        line.push(move)
        if not is_expected:
            outcome = line.outcome()
            return outcome.over and outcome.value < 0  # mate
        if ply + 1 == len(self.moves):
            return True
        line.push_text(self.moves[ply + 1])
        return None


def read_puzzles(path: Path, choose: Callable[[int], Collection[int]]) -> tuple[list[Puzzle], int]:
    """Those of a file whose numbers `choose` picks, given how many there are, and how many there are.

    Columns go by the names of the first line; without one they are FEN, Moves and Rating, or Lichess's.
    Raises DataError naming file, line and value.
    """
    in_file = sum(1 for _ in _rows(path))
    chosen = set(choose(in_file))
    if not chosen:
        raise DataError(f"{path}: no puzzle; expected lines of {', '.join(COLUMNS)}")
    puzzles = [_puzzle(path, line, row) for n, (line, row) in enumerate(_rows(path)) if n in chosen]
    return puzzles, in_file


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each puzzle's line and values."""
    reader = csv.reader(text_lines(path, WHAT))
    try:
        rows = filter(None, reader)
        first = next(rows, [])
        if not first:
            return
        names = first if set(COLUMNS) <= set(first) else UNNAMED.get(len(first), ())
        if not names:
            expected = f"expected the columns {', '.join(COLUMNS)}, or a line that names them"
            raise DataError(f"{path}:{reader.line_num}: {quoted(','.join(first))}: {expected}")
        if names is not first:
            yield reader.line_num, dict(zip(names, first, strict=False))
        for row in rows:
            yield reader.line_num, dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: {reason(error)}; expected {WHAT}") from error


def _puzzle(path: Path, number: int, row: dict[str, str]) -> Puzzle:
    try:
        fen, moves, rating = row["FEN"], tuple(row["Moves"].split()), row["Rating"]
        if not re.fullmatch(r"[0-9]{1,4}", rating):
            raise ValueError(f"Rating {quoted(rating)}: expected a whole number of at most 4 digits")
        if len(moves) < 2 or len(moves) % 2:
            raise ValueError(f"Moves {quoted(row['Moves'])}: expected UCI by turns, the opponent's first")
        line = make_line("chess", fen)
        for move in moves:
            line.push_text(move)
    except KeyError as error:
        raise DataError(f"{path}:{number}: no value of {error}; expected {', '.join(COLUMNS)}") from None
    except (GameInputError, ValueError) as error:
        raise DataError(f"{path}:{number}: {reason(error)}") from error
    return Puzzle(shortened(row.get("PuzzleId") or f"{path.name}:{number}"), fen, moves, int(rating))


class Problem(Protocol):
    """A position with a solution: a puzzle, or one of a test suite."""

    @property
    def name(self) -> str: ...

    def line(self) -> Line: ...

    def judge(self, line: Line, move: int) -> bool | None: ...


def failures(
    problems: Sequence[Problem], choose: Choose, at_once: int, ended: Callable[[int], None]
) -> list[str | None]:
    """The move by which a player fails each of them, None where it solves it; `at_once` at a time.

    `ended` is called with the number of each that is over. Where the rules have ended the game (Lichess waits
    for a claim of a draw), no move is left to find and none is given.
    """
    failed: list[str | None] = [""] * len(problems)
    waiting = iter(enumerate(problems))
    lines: dict[int, Line] = {}
    while True:
        lines |= {number: problem.line() for number, problem in islice(waiting, at_once - len(lines))}
        if not lines:
            return failed
        asked = {number: line for number, line in lines.items() if not line.outcome().over}
        over = lines.keys() - asked.keys()
        for (number, line), move in zip(asked.items(), choose(asked) if asked else (), strict=True):
            text = move_text(line, move)
            verdict = problems[number].judge(line, move)
            if verdict is not None:
                failed[number] = None if verdict else text
                over.add(number)
        for number in over:
            del lines[number]
            ended(number)


def bands(puzzles: Sequence[Puzzle], solved: Sequence[bool]) -> list[dict[str, int]]:
    """Puzzles and those solved, by ratings from `low` to below `high`, BAND points each; none is empty."""
    by_rating: dict[int, list[bool]] = {}
    for puzzle, is_solved in zip(puzzles, solved, strict=True):
        by_rating.setdefault(puzzle.rating // BAND * BAND, []).append(is_solved)
    return [
        {"low": low, "high": low + BAND, "puzzles": len(each), "solved": sum(each)}
        for low, each in sorted(by_rating.items())
    ]


def explaining_rating(puzzles: Sequence[Puzzle], solved: Sequence[bool]) -> Rating:
    """The rating whose points against opponents of the puzzles' ratings would be those solved.

    Where all are solved, or none, its end is that of the prior. The ratings of the puzzles count as exact.
    """
    games = Counter(puzzle.rating for puzzle in puzzles)
    points = Counter(puzzle.rating for puzzle, own in zip(puzzles, solved, strict=True) if own)
    return posterior(((rating, points[rating], number) for rating, number in games.items()), list(games))
