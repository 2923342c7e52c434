"""What lines of play of any game are asked for: who made each move, leaves, positions of random games."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from alphazero.base.errors import GameInputError
from alphazero.games.core_types import Leaves, Line
from alphazero.games.registry import get_game, make_line

MOST_DEPTH = 99  # of perft
# Of one call into the core, which nothing can interrupt: less than a second where each side has 100 moves.
PLIES_PER_CALL = 4
NUM_POSITIONS = 64  # of random games
# Random games of chess are not over much earlier, those of small boards are.
MOST_PLIES = 80


def first_player_moves(game: str, moves: Sequence[int]) -> npt.NDArray[np.bool_]:
    """For each move of a game from the start on whether the first player made it.

    In some games a player moves several times in a row.
    """
    if get_game(game).core.line.ALTERNATES:
        even: npt.NDArray[np.bool_] = np.arange(len(moves)) % 2 == 0
        return even
    line = make_line(game)
    made = np.zeros(len(moves), np.bool_)
    for ply, move in enumerate(moves):
        made[ply] = line.first_player_to_move
        line.push(int(move))
    return made


def require_move(line: Line) -> None:
    """Raise GameInputError where the rules leave no move: other positions are analysed, drawn or not."""
    if not line.legal():
        raise GameInputError(f"{line}: no legal move, the game is over")


def divide(
    line: Line, depth: int, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, int]]:
    """Each legal move with the leaves below it, `depth` plies from the line's end, until it is stopped."""
    for move in line.legal():
        child = line.copy()
        child.push(move)
        if depth - 1 <= PLIES_PER_CALL:
            leaves = child.perft(depth - 1)
        else:
            leaves = sum(count for _, count in divide(child, depth - 1, is_stopped))
        if is_stopped():
            return
        yield move, leaves


@cache
def random_positions(game: str) -> Leaves:
    """NUM_POSITIONS positions of random games, the same for everybody, to try a network on without data."""
    return leaves_of(random_lines(game))


def leaves_of(lines: Sequence[Line]) -> Leaves:
    """The positions with their legal moves, as an evaluator takes them."""
    legal = [line.legal_indices() for line in lines]
    offset = np.cumsum([0, *map(len, legal)], dtype=np.int32)
    return np.stack([line.packed() for line in lines]), np.concatenate(legal), offset


def random_lines(game: str) -> list[Line]:
    """The positions, none of them over, from early to late in their games."""
    draw = random.Random(0)
    line = make_line(game)
    while not line.outcome().over and line.num_plies < MOST_PLIES:
        line.push(draw.choice(line.legal()))
    longest = max(1, line.num_plies)
    lines: list[Line] = []
    while len(lines) < NUM_POSITIONS:
        line = make_line(game)
        for _ in range(len(lines) * longest // NUM_POSITIONS):
            line.push(draw.choice(line.legal()))
            if line.outcome().over:
                break
        if not line.outcome().over:
            lines.append(line)
    return lines
