"""What random games by rules outside the core are like: their length and their number of legal moves."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from alphazero.games.core_types import core_types
from alphazero.games.outside.use import rules_of, use_rules

# Counts and no seconds, so that every rank of every host measures the same. Half a second at 50 us a ply.
MOST_GAMES = 100
MOST_PLIES = 10_000  # of all games together
SEED = 1


@dataclass(frozen=True)
class Measured:
    """planes, height, width: of an observation, one square where it is no board.

    limit: plies that no game exceeds, as the rules have it. longest: the longest of the random games.
    """

    name: str
    planes: int
    height: int
    width: int
    limit: int
    mean_plies: float
    longest: int
    mean_legal: float
    most_legal: int

    @property
    def squares(self) -> int:
        return self.height * self.width


@cache
def measure(name: str) -> Measured:
    """Play random games of a recorded name through the core, which guards against rules that fail or loop.

    Raises ConfigError or RulesError. A game that the count of plies cuts short has no length, unless it is
    the first.
    """
    rules = rules_of(name)
    use_rules(name)
    make_line, draw = core_types(name).line, random.Random(SEED)
    lengths: list[int] = []
    plies = num_legal = most_legal = 0
    while len(lengths) < MOST_GAMES and plies < MOST_PLIES:
        line, length = make_line(), 0
        while not (is_over := line.outcome().over) and length < rules.max_plies and plies < MOST_PLIES:
            legal = sorted(line.legal())
            num_legal += len(legal)
            most_legal = max(most_legal, len(legal))
            line.push(draw.choice(legal))
            length += 1
            plies += 1
        if is_over or length == rules.max_plies or not lengths:
            lengths.append(length)
        if not length:
            break
    planes, height, width = rules.shape
    return Measured(
        name=name,
        planes=planes,
        height=height,
        width=width,
        limit=rules.max_plies,
        mean_plies=sum(lengths) / len(lengths),
        longest=max(lengths),
        mean_legal=num_legal / max(1, plies),
        most_legal=most_legal,
    )
