"""Positions of random games, to try a network on: they need no data, and are the same for everybody."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from alphazero.games.core_types import Leaves, Line
from alphazero.games.registry import make_line

NUM_POSITIONS = 64
# Random games of chess are not over much earlier, those of small boards are.
MOST_PLIES = 80


@cache
def random_positions(game: str) -> Leaves:
    """NUM_POSITIONS positions of random games."""
    return leaves_of(random_lines(game))


def leaves_of(lines: Sequence[Line]) -> Leaves:
    """The positions with their legal moves, as an evaluator takes them."""
    legal = [line.legal_indices() for line in lines]
    offset = np.cumsum([0, *map(len, legal)], dtype=np.int32)
    return np.stack([line.packed() for line in lines]), np.concatenate(legal), offset


def random_lines(game: str) -> list[Line]:
    """The positions, none of them over, from early to late in their games."""
    draw = random.Random(0)
    lines: list[Line] = []
    longest = _usual_plies(game, draw.choice)
    while len(lines) < NUM_POSITIONS:
        line = make_line(game)
        for _ in range(len(lines) * longest // NUM_POSITIONS):
            line.push(draw.choice(line.legal()))
            if line.outcome().over:
                break
        if not line.outcome().over:
            lines.append(line)
    return lines


def _usual_plies(game: str, choice: Callable[[list[int]], int]) -> int:
    """Plies that a random game lasts, MOST_PLIES at most."""
    line = make_line(game)
    while not line.outcome().over and line.num_plies < MOST_PLIES:
        line.push(choice(line.legal()))
    return max(1, line.num_plies)
