"""Makes the files of solved Connect Four positions in alphazero/assets/connect4 (docs/connect4.md).

python -m tools.connect4_positions table FILE --count 100 --seed 1
python -m tools.connect4_positions opening FILE --count 1000 --seed 1 --not-in DIR
python -m tools.connect4_positions early FILE --count 5000 --seed 1 --not-in DIR

`table` writes positions of six classes with the score of every move; `opening` (3 to 6 stones) and `early` (7
to 13) write positions that are long from decided, as in the begin-hard set of Pascal Pons, with the outcome
of every move. All come from games of random moves: the same seed makes the same file, whatever the threads
and the memory.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tqdm import tqdm

import alphazero._core as _core
from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.base.files import replacing
from alphazero.base.log import error_line
from alphazero.base.text import counted
from alphazero.games.core_types import Line
from alphazero.measure.truth.connect4 import OUTCOMES, read_sets, solve_in_threads
from alphazero.measure.truth.positions import SolvedSet, sign

# As Pons's: stones on the board (begin has at most 14, end more than 28), then plies to the end with best
# play: easy less than 14, hard 28 or more (his sets themselves count 14 as easy and 28 as medium).
CLASSES = ("end-easy", "middle-easy", "middle-medium", "begin-easy", "begin-medium", "begin-hard")
# Pons's have 2 to 13. One with fewer than 7 takes ten times as long to solve.
PLIES = {"opening": range(3, 7), "early": range(7, 14)}
FEWEST_PLIES_TO_END = 28  # of hard positions
ANY_SCORE = range(1, 22)
CHUNK = 64  # positions that are solved side by side
# Draws in a row without a new position, after which there is none left.
MOST_DRAWS = 20_000


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("table", *PLIES))
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=100, help="positions, of each class in a table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table-mib", type=int, default=512, help="memory of the solvers")
    parser.add_argument("--num-threads", type=int, default=1, help="solvers of `opening` and `early`")
    parser.add_argument("--not-in", type=Path, nargs="+", help="sets whose positions these leave out")
    args = parser.parse_args(argv)
    try:
        if args.kind == "table":
            lines = table_lines(args.count, args.seed, args.table_mib)
        else:
            excluded = keys_of(read_sets(args.not_in)) if args.not_in else frozenset()
            lines = early_lines(args.kind, args.count, args.seed, excluded, args.table_mib, args.num_threads)
        with replacing(args.file) as file:
            file.write(("\n".join(lines) + "\n").encode("ascii"))
    except (AlphaZeroError, OSError) as error:
        print(error_line(str(error)), file=sys.stderr)
        return AlphaZeroError.exit_code
    return 0


def table_lines(count: int, seed: int, table_mib: int) -> list[str]:
    """`count` positions of each class in which moves differ in outcome, with the score of every move."""
    solver = _core.Connect4Solver(table_mib)
    rows: dict[str, list[str]] = {name: [] for name in CLASSES}
    for moves, line in random_positions(seed):
        score = solver.score(line)
        name = class_of(len(moves), score)
        if name not in rows or len(rows[name]) == count:
            continue
        outcomes = {sign(value) for value in solver.move_outcomes(line) if value != solver.ILLEGAL}
        if len(outcomes) < 2:
            continue
        scores = ["-" if value == solver.ILLEGAL else str(value) for value in solver.move_scores(line)]
        rows[name].append("\t".join([name, moves, str(score), *scores]))
        if all(len(of_class) == count for of_class in rows.values()):
            break
    return [
        "# Connect Four positions from random games with the exact score of every move",
        f"# made by: python -m tools.connect4_positions table FILE --count {count} --seed {seed}",
        "# class, moves (columns 1-7), score, score after a stone in column 1 ... 7 for the side that moves",
        *(row for name in CLASSES for row in rows[name]),
    ]


def plies_to_end(num_stones: int, score: int) -> int:
    """Plies to the end with best play of both sides, where the side to move has `score`."""
    if score == 0:
        return 42 - num_stones
    own_stones = num_stones // 2 if score > 0 else num_stones - num_stones // 2
    last_moves = 22 - abs(score) - own_stones  # of the winner
    return 2 * last_moves - 1 if score > 0 else 2 * last_moves


def class_of(num_stones: int, score: int) -> str:
    """The position's class in the table, which may be none of CLASSES."""
    length = "end" if num_stones > 28 else "middle" if num_stones > 14 else "begin"
    left = plies_to_end(num_stones, score)
    return f"{length}-{'easy' if left < 14 else 'medium' if left < 28 else 'hard'}"


def random_positions(seed: int) -> Iterator[tuple[str, _core.Connect4Line]]:
    """Endless positions of games of random moves, none over; mirror images count as duplicates."""
    generator = random.Random(seed)
    seen: set[str] = set()
    while True:
        line, moves = play_at_random(generator, generator.randrange(10, 41))
        key = key_of(line)
        if not line.outcome().over and key not in seen:
            seen.add(key)
            yield moves, line


def play_at_random(generator: random.Random, plies: int) -> tuple[_core.Connect4Line, str]:
    """A game of so many random moves, or until it is over; its moves as columns 1-7."""
    line, moves = _core.Connect4Line(), ""
    while len(moves) < plies and not line.outcome().over:
        move = generator.choice(line.legal())
        line.push(move)
        moves += str(move + 1)
    return line, moves


def key_of(line: Line) -> str:
    """The same for a position and its mirror image."""
    rows = str(line).split("/")
    return min("/".join(rows), "/".join(row[::-1] for row in rows))


def keys_of(sets: Sequence[SolvedSet]) -> frozenset[str]:
    """The keys of all positions of these sets."""
    return frozenset(key_of(position.line) for entry in sets for position in entry.positions)


def early_lines(
    kind: str, count: int, seed: int, excluded: frozenset[str], table_mib: int, num_threads: int
) -> list[str]:
    """`count` hard early positions with the outcome of every move. Raises DataError where there are fewer.

    kind: of PLIES.
    """
    drawn = early_positions(kind, seed, excluded)
    rows: list[str] = []
    with tqdm(total=count, unit="position", leave=False, disable=None) as bar:
        while len(rows) < count and (chunk := list(islice(drawn, CHUNK))):
            rows += filter(None, solve_in_threads(early_line, chunk, table_mib, num_threads))
            bar.update(min(count, len(rows)) - bar.n)
    if len(rows) < count:
        raise DataError(f"found {counted(len(rows), 'position')}; expected {count:,}")
    return [
        "# Connect Four: early positions with the outcome of every move",
        "# moves (columns 1-7), then for columns 1 ... 7: + won, = drawn, - lost by that move, . full",
        early_origin(kind, seed, excluded),
        *rows[:count],
    ]


def early_origin(kind: str, seed: int, excluded: frozenset[str]) -> str:
    """The line of the head that states what the positions depend on."""
    origin = f"# made by: python -m tools.connect4_positions {kind} FILE --seed {seed}"
    if excluded:
        digest = hashlib.sha256("\n".join(sorted(excluded)).encode("ascii")).hexdigest()
        origin += f" --not-in PATH; PATH has {len(excluded):,} different positions, sha256 {digest[:16]}"
    return origin


def early_positions(kind: str, seed: int, excluded: frozenset[str] = frozenset()) -> Iterator[str]:
    """Moves of random positions with PLIES[kind] stones, none over and none twice, until none is left."""
    generator = random.Random(seed)
    seen = set(excluded)
    missed = 0
    while missed < MOST_DRAWS:
        line, moves = play_at_random(generator, generator.choice(PLIES[kind]))
        key = key_of(line)
        missed += 1
        if not line.outcome().over and key not in seen:
            missed = 0
            seen.add(key)
            yield moves


def is_hard(solver: _core.Connect4Solver, line: _core.Connect4Line) -> bool:
    """Whether best play takes FEWEST_PLIES_TO_END plies or more: two searches, where the score takes many."""
    stones = line.num_plies

    def latest(winner: int) -> int:
        """The highest score that leaves enough plies; 0 where none does."""
        long = [score for score in ANY_SCORE if plies_to_end(stones, winner * score) >= FEWEST_PLIES_TO_END]
        return max(long, default=0)

    return not solver.at_least(line, latest(1) + 1) and solver.at_least(line, -latest(-1))


def early_line(solver: _core.Connect4Solver, moves: str) -> str | None:
    """The file's line for a position, None where it is not hard."""
    line = _core.Connect4Line()
    for move in moves:
        line.push(int(move) - 1)
    if not is_hard(solver, line):
        return None
    signs = {solver.ILLEGAL if outcome is None else outcome: sign for sign, outcome in OUTCOMES.items()}
    return f"{moves} {''.join(signs[outcome] for outcome in solver.move_outcomes(line))}"


if __name__ == "__main__":
    sys.exit(main())
