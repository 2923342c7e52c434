"""Matches: two players from many openings, each opening with either side."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alphazero.evaluation.elo import MatchScore
from alphazero.evaluation.players import Player
from alphazero.evaluation.sprt import Sprt
from alphazero.games.core_types import Line
from alphazero.games.registry import make_line

OPENINGS_PER_ROUND = 32  # between two looks at a test
ATTEMPTS_PER_OPENING = 20  # before openings repeat


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
    test: Sprt | None = None,
    after_move: Callable[[int], None] = lambda over: None,
) -> MatchScore:
    """Both players from every opening with either side: two games per opening, until `test` is decided.

    All games are played side by side, so that their positions share batches; with a test in rounds of
    OPENINGS_PER_ROUND. Games longer than max_plies are drawn. after_move is told how many games are over.
    """
    score = MatchScore(0, 0, 0)
    size = OPENINGS_PER_ROUND if test else max(1, len(openings))
    for start in range(0, len(openings), size):
        before = score.games

        def count(over: int, before: int = before) -> None:
            after_move(before + over)

        score += _play_round(first, second, openings[start : start + size], max_plies, count)
        if test and test.decide(score.pairs) != "continue":
            break
    return score


def _play_round(
    first: Player,
    second: Player,
    openings: Sequence[Line],
    max_plies: int,
    after_move: Callable[[int], None],
) -> MatchScore:
    games = [
        _Game(opening.copy(), number, is_white)
        for number, opening in enumerate(openings)
        for is_white in (True, False)
    ]
    results: list[list[int]] = [[] for _ in openings]
    while games:
        for player, is_first in ((first, True), (second, False)):
            to_move = [game.line for game in games if game.first_is_to_move == is_first]
            if not to_move:
                continue
            for line, move in zip(to_move, player(to_move), strict=True):
                line.push(move)
            games = _without_finished(games, results, max_plies)
            after_move(sum(map(len, results)))
    return _score(results)


@dataclass(frozen=True)
class _Game:
    """A game under way; first_is_white: whether the first player moves when the game's first player does."""

    line: Line
    opening: int
    first_is_white: bool

    @property
    def first_is_to_move(self) -> bool:
        """Whether it is the first player's turn."""
        return self.line.first_player_to_move == self.first_is_white


def _without_finished(games: list[_Game], results: list[list[int]], max_plies: int) -> list[_Game]:
    """The games that go on; results (1, 0, -1) gets those of the others, for the first player, by opening."""
    left = []
    for game in games:
        outcome = game.line.outcome()
        if outcome.over:
            results[game.opening].append(outcome.value if game.first_is_to_move else -outcome.value)
        elif game.line.num_plies >= max_plies:
            results[game.opening].append(0)
        else:
            left.append(game)
    return left


def _score(results: Sequence[Sequence[int]]) -> MatchScore:
    """results: two of every opening."""
    games = Counter(itertools.chain.from_iterable(results))
    pairs = Counter(sum(pair) for pair in results)  # -2 to 2
    return MatchScore(games[1], games[0], games[-1], (pairs[-2], pairs[-1], pairs[0], pairs[1], pairs[2]))
