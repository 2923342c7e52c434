"""A match of two players of this process: batched, from many openings, each opening with either side."""

from __future__ import annotations

from collections.abc import Sequence

from alphazero.evaluation.elo import MatchScore
from alphazero.evaluation.matches.adjudication import Adjudication
from alphazero.evaluation.matches.conduct import Conditions, Conductor
from alphazero.evaluation.matches.contestants import InProcess
from alphazero.evaluation.matches.game import FinishedGame
from alphazero.evaluation.matches.openings import Opening
from alphazero.evaluation.matches.schedule import games_of
from alphazero.evaluation.matches.scoreboard import Scoreboard
from alphazero.evaluation.players import Player, without_values
from alphazero.evaluation.sprt import Sprt

LANES_OF_TEST = 64  # more games side by side would be played in vain when the test is decided


def play_match(
    game: str,
    first: Player,
    second: Player,
    openings: Sequence[Opening],
    *,
    max_plies: int = 512,
    test: Sprt | None = None,
) -> MatchScore:
    """Both players from every opening with either side: two games per opening, until `test` is decided.

    Games are played side by side, so that their positions share batches: all at once, with a test
    LANES_OF_TEST of them. Games longer than max_plies are drawn.
    """
    board = Scoreboard()

    def on_game(over: FinishedGame) -> bool:
        board.add(over)
        return test is None or test.decide(board.in_order(0, 1).pairs) == "continue"

    lanes = LANES_OF_TEST if test else max(1, 2 * len(openings))
    conditions = Conditions(game, Adjudication(max_plies=max_plies), lanes=lanes)
    players = [InProcess("first", without_values(first)), InProcess("second", without_values(second))]
    Conductor(players, conditions, engines=None, on_game=on_game).play(games_of([(0, 1)], openings))
    return board.in_order(0, 1) if test else board.score(0, 1)
