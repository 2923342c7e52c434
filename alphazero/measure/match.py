"""The results of a match by pairs of games, and a match of two players of this process."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from alphazero.measure.elo import MatchScore
from alphazero.play.matches.game import Adjudication, FinishedGame, pairings_of
from alphazero.play.matches.match import Arena, MatchPlan
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.players import ChooseMoves, Player, decisions_of


class Scoreboard:
    """The results so far; games are added in any order."""

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
        """The pairs of players that have met, the lower number first."""
        return sorted(self._results)

    def losses(self, player: int) -> dict[str, int]:
        """The number of losses by each ending."""
        return {ending: count for (loser, ending), count in self._endings.items() if loser == player}

    def points(self, player: int, other: int) -> MatchScore:
        """All games of the two, for `player`, whether their pairs are complete or not; without pairs."""
        games = Counter(itertools.chain(*self._pairs(player, other).values()))
        return MatchScore(games[1], games[0], games[-1])

    def score(self, player: int, other: int) -> MatchScore:
        """The complete pairs of the two, for `player`."""
        return _score(self._pairs(player, other).values())

    def total(self, player: int) -> MatchScore:
        """The complete pairs of the player."""
        total = MatchScore(0, 0, 0)
        for low, high in self.met:
            if player in (low, high):
                total += self.score(player, high if player == low else low)
        return total

    def in_order(self, player: int, other: int) -> MatchScore:
        """The complete pairs before the first incomplete one.

        A test of the games that end first would see short games first, which are no fair sample.
        """
        pairs = self._pairs(player, other)
        in_order = (pairs.get(number, []) for number in itertools.count())
        return _score(itertools.takewhile(lambda results: len(results) == 2, in_order))

    def _pairs(self, player: int, other: int) -> dict[int, list[int]]:
        """For each pair of games of the two: 1, 0, -1 for each one that `player` won, drew, lost."""
        pairs = self._results[min(player, other), max(player, other)]
        sign = 1 if player < other else -1
        return {pair: [sign * result for result in results] for pair, results in pairs.items()}


def _score(pairs: Iterable[list[int]]) -> MatchScore:
    """Of the complete pairs, so that games and pairs are one sample."""
    games: Counter[int] = Counter()
    points: Counter[int] = Counter()  # -2 to 2
    for results in pairs:
        if len(results) == 2:
            games.update(results)
            points[sum(results)] += 1
    return MatchScore(games[1], games[0], games[-1], tuple(points[sum_of] for sum_of in range(-2, 3)))


def play_match(
    game: str, first: ChooseMoves, second: ChooseMoves, openings: Sequence[Opening], *, max_plies: int = 512
) -> MatchScore:
    """Both players from every opening with either side: two games per opening.

    Games are played side by side, all at once, so that their positions share batches. Games longer than
    max_plies are drawn.
    """
    board = Scoreboard()

    def on_game(over: FinishedGame) -> bool:
        board.add(over)
        return True

    players = (Player("first", decide=decisions_of(first)), Player("second", decide=decisions_of(second)))
    pairings = tuple(pairings_of(2, openings))
    plan = MatchPlan(game, players, pairings, Adjudication(max_plies=max_plies), lanes=max(1, len(pairings)))
    with Arena() as arena:
        arena.play(plan, on_game, lambda line: None)
    return board.score(0, 1)
