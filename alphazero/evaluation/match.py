"""Matches: two players from many openings, each opening with either side; the score as Elo."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alphazero.evaluation.players import Player
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line

# Two-sided 95 % of the normal distribution.
Z_95 = 1.959964
ATTEMPTS_PER_OPENING = 20  # before openings repeat


@dataclass(frozen=True)
class MatchScore:
    """Games of the first player."""

    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        """All games."""
        return self.wins + self.draws + self.losses

    @property
    def share(self) -> float:
        """Points a game, 0 to 1; a draw is half a point."""
        return (self.wins + 0.5 * self.draws) / max(1, self.games)

    def elo(self) -> tuple[float, float, float]:
        """The first player's Elo above the second's, with the ends of the 95 % interval.

        Logistic; the interval is that of the mean of the games' points (normal, as cutechess has it);
        infinite where an end of it reaches 0 or 1 point a game.
        """
        mean = self.share
        squares = (
            self.wins * (1 - mean) ** 2 + self.draws * (0.5 - mean) ** 2 + self.losses * mean**2
        ) / max(1, self.games)
        margin = Z_95 * math.sqrt(squares / max(1, self.games))
        return elo_of(mean), elo_of(mean - margin), elo_of(mean + margin)


def elo_of(share: float) -> float:
    """The Elo difference at which `share` points per game are expected."""
    if share <= 0:
        return -math.inf
    return math.inf if share >= 1 else -400 * math.log10(1 / share - 1)


def random_openings(game_name: str, count: int, plies: int, seed: int) -> list[Line]:
    """`count` positions after `plies` random moves, none over; different ones as far as there are enough."""
    generator = random.Random(seed)
    openings: dict[int, Line] = {}
    attempts: list[Line] = []
    while len(openings) < count and len(attempts) < ATTEMPTS_PER_OPENING * count:
        line = make_line(game_name)
        while line.num_plies < plies and not line.outcome().over:
            line.push(generator.choice(line.legal()))
        if not line.outcome().over:
            attempts.append(line)
            openings.setdefault(line.key, line)
    return [*openings.values(), *attempts][:count]


def play_match(
    first: Player,
    second: Player,
    openings: Sequence[Line],
    *,
    max_plies: int = 512,
    after_move: Callable[[int], None] = lambda over: None,
) -> MatchScore:
    """Both players from every opening with either side: two games an opening, all side by side.

    Games longer than max_plies are drawn. after_move is told how many games are over.
    """
    # A game is its line and whether the first player moves when the game's first player does.
    games = [(opening.copy(), is_white) for opening in openings for is_white in (True, False)]
    points = {1: 0, 0: 0, -1: 0}
    while games:
        for player, is_first in ((first, True), (second, False)):
            to_move = [
                line for line, is_white in games if (line.first_player_to_move == is_white) == is_first
            ]
            if not to_move:
                continue
            for line, move in zip(to_move, player(to_move), strict=True):
                line.push(move)
            games = _without_finished(games, points, max_plies)
            after_move(sum(points.values()))
    return MatchScore(points[1], points[0], points[-1])


def _without_finished(
    games: list[tuple[Line, bool]], points: dict[int, int], max_plies: int
) -> list[tuple[Line, bool]]:
    """The games that go on; the results of the others are counted for the first player."""
    left = []
    for line, is_white in games:
        outcome = line.outcome()
        if outcome.over:
            points[outcome.value if line.first_player_to_move == is_white else -outcome.value] += 1
        elif line.num_plies >= max_plies:
            points[0] += 1
        else:
            left.append((line, is_white))
    return left
