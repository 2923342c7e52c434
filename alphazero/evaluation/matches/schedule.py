"""Which games a match or tournament has, in their order: pairs from the same opening with sides reversed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from alphazero.evaluation.matches.game import Pairing
from alphazero.evaluation.matches.openings import Opening

ROUND_ROBIN = "round-robin"
GAUNTLET = "gauntlet"
TOURNAMENTS = (ROUND_ROBIN, GAUNTLET)


def meetings(num_players: int, tournament: str) -> list[tuple[int, int]]:
    """Who meets whom: all each other, or the first one all others."""
    if tournament == GAUNTLET:
        return [(0, other) for other in range(1, num_players)]
    return list(itertools.combinations(range(num_players), 2))


def games_of(met: Sequence[tuple[int, int]], openings: Sequence[Opening]) -> Iterator[Pairing]:
    """Two games for each opening and meeting, opening by opening."""
    number = 0
    for pair, opening in enumerate(openings):
        for first, second in met:
            yield Pairing(number + 1, pair, first, second, opening)
            yield Pairing(number + 2, pair, second, first, opening)
            number += 2
