"""Games dealt to processes: by whole pairs, and nothing of a share is lost on the way."""

from dataclasses import replace

from alphazero.base.records import from_json, to_json
from alphazero.play.matches.conduct import Conditions
from alphazero.play.matches.game import (
    Adjudication,
    Decision,
    DrawRule,
    Ending,
    FinishedGame,
    ResignRule,
    Score,
    games_of,
)
from alphazero.play.matches.limits import Limit, TimeControl
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.players import InProcess, PlayerWords, Thought
from alphazero.play.matches.stage import MatchShare, OwnStage, dealt
from alphazero.search.metered import Effort, Meter

OPENINGS = [Opening(None, (move,), "A00", "Name") for move in ("e2e4", "d2d4", "c2c4")]
PAIRINGS = list(games_of([(0, 1), (0, 2)], OPENINGS))


def test_pairs_are_dealt_whole_and_in_order() -> None:
    first, second = dealt(PAIRINGS, 2)
    assert [pairing.number for pairing in first] == [1, 2, 5, 6, 9, 10]
    assert [pairing.number for pairing in second] == [3, 4, 7, 8, 11, 12]
    # Games of a pair that was half played when the match was stopped.
    left, right = dealt([PAIRINGS[number - 1] for number in (2, 3, 4)], 2)
    assert [[pairing.number for pairing in part] for part in (left, right)] == [[2], [3, 4]]
    assert dealt(PAIRINGS[:2], 3) == [tuple(PAIRINGS[:2]), (), ()]


def test_a_share_and_a_game_cross_to_another_process_as_they_are() -> None:
    rules = Adjudication(DrawRule(40, 8, 10), ResignRule(3, 600, True), 300)
    limit = Limit(7, None, 0.5, TimeControl(60.0, 0.5, 40), 0.2)
    words = PlayerWords("--player x", "engine", "x\u00e9", "", ("a", "b c"), "d", {"Hash": "16"}, limit, 0.25)
    share = MatchShare((words, replace(words, limit=None)), Conditions("chess", rules), tuple(PAIRINGS))
    assert from_json(MatchShare, to_json(share)) == share
    decisions = (Decision("e7e5", Score(-35), 12, 800, 0.1), Decision("a2a3"), Decision("x", Score(mate=3)))
    game = FinishedGame(PAIRINGS[0], 0.5, Ending.ABANDONED, "White \u00e9", decisions, 1.5)
    assert from_json(FinishedGame, to_json(game)) == game


def test_players_are_made_once_for_the_shares_of_the_same_players_and_time_counts_play() -> None:
    made: list[str] = []

    def make(words: PlayerWords) -> InProcess:
        made.append(words.name)
        return InProcess(words.name, lambda lines: [Thought(line.legal()[0]) for line in lines.values()])

    players = tuple(PlayerWords(name, "random", name) for name in "abc")
    share = MatchShare(players, Conditions("chess", Adjudication(max_plies=4)), tuple(PAIRINGS[:4]))
    games: list[FinishedGame] = []
    with OwnStage(make, Meter(6, 0.5)) as stage:
        assert stage.efforts == [Effort(6, 0.5, 0.0)]
        stage.play(replace(share, pairings=()), lambda game: True, print)
        assert made == []
        for _ in range(2):
            stage.play(share, lambda game: games.append(game) is None, print)
        assert made == ["a", "b", "c"] and len(games) == 8
        (effort,) = stage.efforts
        assert sum(game.seconds for game in games) > 0 and 0 < effort.seconds < 60
        stage.play(
            replace(share, players=players[:2], pairings=share.pairings[:2]), lambda game: False, print
        )
        assert made == ["a", "b", "c", "a", "b"]
