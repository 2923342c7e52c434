"""The results of a match so far: of each two players, by pairs of games."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from alphazero.evaluation.elo import MatchScore
from alphazero.evaluation.matches.game import FinishedGame


class Scoreboard:
    """Takes in games in any order."""

    def __init__(self) -> None:
        # By (lower, higher) player and pair: 1, 0, -1 for each game that the lower one won, drew, lost.
        self._results: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._endings: Counter[tuple[int, str]] = Counter()
        self.games = 0

    def add(self, game: FinishedGame) -> None:
        """Count a game."""
        pairing = game.pairing
        for_first = round(2 * game.points) - 1
        low, high = sorted((pairing.first, pairing.second))
        self._results[low, high][pairing.pair].append(for_first if pairing.first == low else -for_first)
        self.games += 1
        if game.points != 0.5:
            loser = pairing.second if game.points else pairing.first
            self._endings[loser, game.ending.value] += 1

    @property
    def met(self) -> list[tuple[int, int]]:
        """Who has met whom, the lower number first."""
        return sorted(self._results)

    def losses(self, player: int) -> dict[str, int]:
        """How often the player lost by each ending."""
        return {ending: count for (loser, ending), count in self._endings.items() if loser == player}

    def score(self, player: int, other: int) -> MatchScore:
        """All games of the two, for `player`."""
        score = _score(self._results[min(player, other), max(player, other)].values())
        return score if player < other else score.reversed()

    def total(self, player: int) -> MatchScore:
        """All games of the player."""
        total = MatchScore(0, 0, 0)
        for low, high in self.met:
            if player in (low, high):
                total += self.score(player, high if player == low else low)
        return total

    def in_order(self, player: int, other: int) -> MatchScore:
        """The pairs that are complete, up to the first one that is not.

        A test that looked at whatever ends first would see short games first, and those are no fair sample.
        """
        pairs = self._results[min(player, other), max(player, other)]
        complete: list[list[int]] = []
        while len(pairs.get(len(complete), ())) == 2:
            complete.append(pairs[len(complete)])
        score = _score(complete)
        return score if player < other else score.reversed()


def _score(pairs: Iterable[list[int]]) -> MatchScore:
    """Of games by pairs; a pair of one game counts as a game alone."""
    games: Counter[int] = Counter()
    points: Counter[int] = Counter()  # -2 to 2
    for results in pairs:
        games.update(results)
        if len(results) == 2:
            points[sum(results)] += 1
    return MatchScore(
        games[1], games[0], games[-1], (points[-2], points[-1], points[0], points[1], points[2])
    )
