"""The project's own early positions of Connect Four: drawn by a seed, solved for their moves' outcomes, kept.

They are as the begin-hard set of Pascal Pons: moves at random, of which only those positions stay where best
play goes on for long. A network is tuned on them, so that the published sets are left for the last word.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import alphazero._core as _core
from alphazero.base.errors import DataError
from alphazero.base.files import complete_lines, cut_unfinished_line
from alphazero.base.text import counted
from alphazero.measure.exact_truth import (
    COLUMNS,
    FULL,
    OUTCOME_SIGNS,
    OUTCOMES_HEAD,
    SolvedSet,
    plies_to_end,
    read_outcomes,
    solve_in_threads,
)

# The published set has 2 to 13. With fewer than 7, a position is ten times the work of the others.
PLIES = range(7, 14)
FEWEST_PLIES_TO_END = 28  # of hard positions
ANY_SCORE = range(1, 22)
# So many draws in a row without a position worth keeping do not happen while there are any left.
MOST_DRAWS = 20_000


@dataclass(frozen=True)
class Drawing:
    """What decides the positions: a table of more positions begins with those of one of fewer.

    excluded: names of positions (see `name_of`) that are left out.
    """

    seed: int
    excluded: frozenset[str] = frozenset()

    def heads(self) -> list[str]:
        """The table's lines of comment."""
        made_by = f"# made by: alphazero solve --make-early FILE --seed {self.seed}"
        if self.excluded:
            digest = hashlib.sha256("\n".join(sorted(self.excluded)).encode("ascii")).hexdigest()
            positions = counted(len(self.excluded), "different position")
            made_by += f" --not-in PATH; PATH has {positions}, sha256 {digest[:16]}"
        return [
            OUTCOMES_HEAD,
            "# moves (columns 1-7), then for columns 1 ... 7: + won, = drawn, - lost by that move, . full",
            made_by,
        ]

    def draws(self) -> Iterator[str]:
        """Moves at random, as columns 1-7; no game is over, no position is drawn twice, not even mirrored.

        Ends where no more are found.
        """
        generator = random.Random(self.seed)
        seen = set(self.excluded)
        missed = 0
        while missed < MOST_DRAWS:
            line, moves = _core.Connect4Line(), ""
            for _ in range(generator.choice(PLIES)):
                if line.outcome().over:
                    break
                move = generator.choice(line.legal())
                line.push(move)
                moves += str(move + 1)
            name = name_of(line)
            missed += 1
            if not line.outcome().over and name not in seen:
                missed = 0
                seen.add(name)
                yield moves


def name_of(line: _core.Connect4Line) -> str:
    """One for a position and its mirror image."""
    rows = str(line).split("/")
    return min("/".join(rows), "/".join(row[::-1] for row in rows))


def names_of(sets: Sequence[SolvedSet]) -> frozenset[str]:
    """Of all their positions."""
    return frozenset(name_of(position.line()) for entry in sets for position in entry.positions)


def is_hard(solver: _core.Connect4Solver, line: _core.Connect4Line) -> bool:
    """Whether best play takes FEWEST_PLIES_TO_END plies or more: two searches, where the score takes many."""
    stones = line.num_plies

    def latest(sign: int) -> int:
        """The highest score of those that leave so many plies; 0 where none does."""
        long = [score for score in ANY_SCORE if plies_to_end(stones, sign * score) >= FEWEST_PLIES_TO_END]
        return max(long, default=0)

    return not solver.at_least(line, latest(1) + 1) and solver.at_least(line, -latest(-1))


def solved_line(solver: _core.Connect4Solver, moves: str) -> str | None:
    """The table's line for a position, None where it is not hard."""
    line = _core.Connect4Line()
    for move in moves:
        line.push(int(move) - 1)
    if not is_hard(solver, line):
        return None
    outcomes = solver.move_outcomes(line)
    signs = [FULL if outcome == solver.ILLEGAL else OUTCOME_SIGNS[outcome] for outcome in outcomes]
    assert len(signs) == COLUMNS
    return f"{moves} {''.join(signs)}"


def extend_table(path: Path, drawing: Drawing, count: int, table_mib: int, num_threads: int) -> Iterator[int]:
    """Have `count` positions in the table, where it was left; tells how many it holds, again and again.

    num_threads solvers share table_mib. Raises DataError for a file that holds something else, and where
    there are not so many positions.
    """
    draws = drawing.draws()
    held = resume(path, drawing, draws)
    yield held
    solved = solve_in_threads(solved_line, draws, table_mib, num_threads)
    with path.open("a", encoding="ascii") as file, closing(solved):
        hard = (line for line in solved if line is not None)
        for line in islice(hard, max(0, count - held)):
            file.write(line + "\n")
            file.flush()
            held += 1
            yield held
        file.flush()
        os.fsync(file.fileno())
    if held < count:
        raise DataError(f"{path}: no more than {counted(held, 'position')} found, expected {count:,}")


def resume(path: Path, drawing: Drawing, draws: Iterator[str]) -> int:
    """Positions in the table so far, past which `draws` is taken; a new table has its head afterwards."""
    heads = drawing.heads()
    text = path.read_bytes() if path.exists() else b""
    head = ("\n".join(heads) + "\n").encode("ascii")
    if text and not (text.startswith(head) or head.startswith(text)):
        raise DataError(
            f"{path}: holds something else; expected none, or a table with the line {heads[-1]!r}"
        )
    if not text.startswith(head):
        path.write_bytes(head)
        return 0
    cut_unfinished_line(path)
    lines = complete_lines(path)[len(heads) :]
    if not lines:
        return 0
    for number, position in enumerate(read_outcomes(path).positions, start=len(heads) + 1):
        if position.moves not in islice(draws, MOST_DRAWS):
            raise DataError(f"{path}:{number}: {position.moves!r}: expected a position drawn by this seed")
    return len(lines)
