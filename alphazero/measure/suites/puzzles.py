"""Lichess's puzzles: read, solved by a player move by move, and the rating that explains what was solved.

A puzzle begins with the opponent's move; then each move of the solver must be the solution's, or mate: "any
move that checkmates should win the puzzle" (https://database.lichess.org/#puzzles). The puzzle's rating is
that of an opponent, who wins where the solver fails.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from alphazero.base.errors import DataError, GameInputError
from alphazero.base.text import quoted, reason, shortened
from alphazero.data.formats.pgn import text_lines
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line
from alphazero.measure.rating import ELO_PER_UNIT, Rating
from alphazero.play.matches.players import Player

WHAT = "puzzles as CSV"
ID, FEN, MOVES, RATING = "PuzzleId", "FEN", "Moves", "Rating"
# The columns of a file without a line of names, by their number: our test data's, and Lichess's own.
UNNAMED = {3: (FEN, MOVES, RATING), 9: (ID, FEN, MOVES, RATING), 10: (ID, FEN, MOVES, RATING)}
_RATING = re.compile(r"[0-9]{1,4}")
BAND = 200  # of ratings, in a table
# Half of the 95 % quantile of chi squared with one degree of freedom: the ends of an interval by likelihood.
LIKELIHOOD_DROP = 1.920729
FARTHEST = 4000.0  # from all puzzles' ratings, where a search for an end gives up


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


def read_puzzles(path: Path, choose: Callable[[int], Collection[int]]) -> list[Puzzle]:
    """Those of a file whose numbers `choose` picks, given how many there are; .zst, .gz and .bz2 as well.

    Columns go by the names of the first line; without one they are FEN, Moves and Rating, or Lichess's.
    Raises DataError naming file, line and value.
    """
    chosen = set(choose(sum(1 for _ in _rows(path))))
    if not chosen:
        raise DataError(f"{path}: no puzzle; expected lines of {FEN}, {MOVES} and {RATING}")
    return [
        _puzzle(f"{path}:{line}", f"{path.name}:{line}", row)
        for number, (line, row) in enumerate(_rows(path))
        if number in chosen
    ]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each puzzle's line and values."""
    reader = csv.reader(text_lines(path, WHAT))
    names: Sequence[str] = ()
    try:
        for row in reader:
            if not row:
                continue
            if not names:
                names = row if {FEN, MOVES, RATING} <= set(row) else UNNAMED.get(len(row), ())
                if not names:
                    expected = f"expected the columns {FEN}, {MOVES} and {RATING}, or a line that names them"
                    raise DataError(f"{path}:{reader.line_num}: {quoted(','.join(row))}: {expected}")
                if names is row:
                    continue
            yield reader.line_num, dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: {reason(error)}; expected {WHAT}") from error


def _puzzle(place: str, name: str, row: dict[str, str]) -> Puzzle:
    try:
        fen, moves, rating = row[FEN], tuple(row[MOVES].split()), row[RATING]
    except KeyError as error:
        raise DataError(f"{place}: no value of {error}; expected {FEN}, {MOVES} and {RATING}") from None
    if not _RATING.fullmatch(rating):
        raise DataError(f"{place}: {RATING} {quoted(rating)}: expected a whole number of at most 4 digits")
    if len(moves) < 2 or len(moves) % 2:
        expected = "expected UCI by turns, the opponent's first, the solver's last"
        raise DataError(f"{place}: {MOVES} {quoted(row[MOVES])}: {expected}")
    try:
        line = make_line("chess", fen)
    except GameInputError as error:
        raise DataError(f"{place}: {reason(error)}") from error
    for move in moves:
        try:
            line.push_text(move)
        except ValueError as error:  # of the core
            raise DataError(f"{place}: {MOVES}: {reason(error)}") from error
    return Puzzle(shortened(row.get(ID) or name), fen, moves, int(rating))


def solve(
    puzzles: Sequence[Puzzle], player: Player, at_once: int, ended: Callable[[], None] = lambda: None
) -> list[bool]:
    """Which of them the player solves, `at_once` at a time; `ended` is called for each that is over.

    Where the rules have ended the game (Lichess waits for a claim of a draw), no move is left to find.
    """
    solved = [False] * len(puzzles)
    waiting = iter(enumerate(puzzles))
    lines: dict[int, Line] = {}
    while True:
        for number, puzzle in islice(waiting, at_once - len(lines)):
            lines[number] = puzzle.line()
        if not lines:
            return solved
        verdicts: dict[int, bool | None] = {
            number: False for number, line in lines.items() if line.outcome().over
        }
        asked = {number: line for number, line in lines.items() if number not in verdicts}
        assert player.decide is not None
        decisions = player.decide(asked) if asked else ()
        for (number, line), decision in zip(asked.items(), decisions, strict=True):
            verdicts[number] = puzzles[number].judge(line, line.text_to_move(decision.move))
        for number, verdict in verdicts.items():
            if verdict is not None:
                solved[number] = verdict
                del lines[number]
                if player.leave is not None:
                    player.leave(number)
                ended()


@dataclass(frozen=True)
class Band:
    """Puzzles of ratings from `low` to below `high`."""

    low: int
    high: int
    puzzles: int
    solved: int


def bands(puzzles: Sequence[Puzzle], solved: Sequence[bool]) -> list[Band]:
    """Of BAND points each, from the lowest rating that occurs; none is empty."""
    found: dict[int, list[bool]] = {}
    for puzzle, is_solved in zip(puzzles, solved, strict=True):
        found.setdefault(puzzle.rating // BAND * BAND, []).append(is_solved)
    return [Band(low, low + BAND, len(each), sum(each)) for low, each in sorted(found.items())]


def explaining_rating(puzzles: Sequence[Puzzle], solved: Sequence[bool]) -> Rating:
    """The likeliest rating by Elo's logistic model, with the ends of its 95 % interval by likelihood ratio.

    Infinite, as is one end, where all are solved or none. The ratings of the puzzles count as exact.
    """
    ratings_P = np.array([puzzle.rating for puzzle in puzzles], np.float64)
    solved_P = np.array(solved, bool)

    def likelihood(rating: float) -> float:
        distance_P = (rating - ratings_P) / ELO_PER_UNIT
        return -float(np.logaddexp(0, np.where(solved_P, -distance_P, distance_P)).sum())

    def surplus(rating: float) -> float:
        """Puzzles that such a player solves beyond those solved: it grows with the rating."""
        return float((1 / (1 + np.exp((ratings_P - rating) / ELO_PER_UNIT))).sum() - solved_P.sum())

    lowest, highest = float(ratings_P.min()) - FARTHEST, float(ratings_P.max()) + FARTHEST
    if solved_P.all() or not solved_P.any():
        best, most = (math.inf if solved_P.all() else -math.inf), 0.0
    else:
        best = _zero(surplus, lowest, highest)
        most = likelihood(best)
    middle = min(max(best, lowest), highest)
    low = _zero(lambda rating: likelihood(rating) - most + LIKELIHOOD_DROP, lowest, middle)
    high = _zero(lambda rating: most - LIKELIHOOD_DROP - likelihood(rating), middle, highest)
    return Rating(best, low if solved_P.any() else -math.inf, high if not solved_P.all() else math.inf)


def _zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that grows changes its sign, by halving."""
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2
