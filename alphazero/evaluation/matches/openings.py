"""Openings: where the games of a match begin; lines of random moves of any game."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from alphazero.games.core_types import Line
from alphazero.games.registry import make_line

ATTEMPTS_PER_OPENING = 20  # before openings repeat


@dataclass(frozen=True)
class Opening:
    """A position, None for the game's start, and the moves played from it, as the core writes them."""

    start: str | None = None
    moves: tuple[str, ...] = ()

    def line(self, game: str) -> Line:
        """The line of play that a game goes on from."""
        line = make_line(game, self.start)
        for move in self.moves:
            line.push_text(move)
        return line


def random_openings(game: str, count: int, plies: int, seed: int) -> list[Opening]:
    """`count` positions after `plies` random moves, none over; different ones as far as there are enough."""
    generator = random.Random(seed)
    openings: dict[int, Opening] = {}
    attempts: list[Opening] = []
    while len(openings) < count and len(attempts) < ATTEMPTS_PER_OPENING * count:
        line, moves = make_line(game), []
        while line.num_plies < plies and not line.outcome().over:
            move = generator.choice(line.legal())
            moves.append(line.move_to_text(move))
            line.push(move)
        if not line.outcome().over:
            attempts.append(Opening(None, tuple(moves)))
            openings.setdefault(line.key, attempts[-1])
    return [*openings.values(), *attempts][:count]


def in_order(openings: Sequence[Opening], count: int, shuffled: bool, seed: int) -> list[Opening]:
    """`count` openings in the book's order or a random one of the seed; after the last the first again."""
    order = list(openings)
    if shuffled:
        random.Random(seed).shuffle(order)
    return [order[number % len(order)] for number in range(count)]
