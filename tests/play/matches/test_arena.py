"""Games dealt to processes: by whole pairs, and nothing of a share is lost on the way."""

from dataclasses import replace

from alphazero.base.records import from_json, to_json
from alphazero.play.matches.game import (
    Adjudication,
    Decision,
    DrawRule,
    Ending,
    FinishedGame,
    ResignRule,
    Score,
    pairings_of,
)
from alphazero.play.matches.limits import Limit, TimeControl
from alphazero.play.matches.match import Arena, MatchPlan, dealt
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.players import Player, decisions_of

OPENINGS = [Opening(None, (move,)) for move in ("e2e4", "d2d4", "c2c4")]
PAIRINGS = tuple(pairings_of(3, OPENINGS, gauntlet=True))


def test_pairs_are_dealt_whole_and_in_order() -> None:
    first, second = dealt(PAIRINGS, 2)
    assert [pairing.number for pairing in first] == [1, 2, 5, 6, 9, 10]
    assert [pairing.number for pairing in second] == [3, 4, 7, 8, 11, 12]
    # Games of a pair that was half played when the match was stopped.
    left, right = dealt([PAIRINGS[number - 1] for number in (2, 3, 4)], 2)
    assert [[pairing.number for pairing in part] for part in (left, right)] == [[2], [3, 4]]
    assert dealt(PAIRINGS[:2], 3) == [PAIRINGS[:2], (), ()]


def test_in_a_gauntlet_the_first_player_meets_the_others_and_else_all_meet_all() -> None:
    assert {(each.first, each.second) for each in PAIRINGS} == {(0, 1), (1, 0), (0, 2), (2, 0)}
    all_meet = list(pairings_of(3, OPENINGS[:1]))
    assert [(each.first, each.second) for each in all_meet] == [
        *((0, 1), (1, 0)),
        *((0, 2), (2, 0)),
        *((1, 2), (2, 1)),
    ]


def test_a_plan_and_a_game_cross_to_another_process_as_they_are() -> None:
    rules = Adjudication(DrawRule(40, 8, 10), ResignRule(3, 600), 300)
    limit = Limit(7, None, 0.5, TimeControl(60.0, 0.5, 40), 0.2)
    player = Player("x\u00e9", "engine", "--player x", "", ("a", "b c"), "d", {"Hash": "16"}, limit, 0.25)
    plan = MatchPlan("chess", (player, replace(player, limit=Limit())), PAIRINGS, rules)
    assert from_json(MatchPlan, to_json(plan)) == plan
    decisions = (Decision("e7e5", Score(-35), 12, 800, 0.1), Decision("a2a3"), Decision("x", Score(mate=3)))
    game = FinishedGame(PAIRINGS[0], 0.5, Ending.ABANDONED, "White \u00e9", decisions, 1.5)
    assert from_json(FinishedGame, to_json(game)) == game


def test_a_player_is_made_ready_once_for_many_plans() -> None:
    made: list[str] = []

    def prepare(player: Player) -> Player:
        made.append(player.name)
        return replace(player, decide=decisions_of(lambda lines: [line.legal()[0] for line in lines]))

    players = tuple(Player(name, "random") for name in "abc")
    plan = MatchPlan("chess", players, PAIRINGS[:4], Adjudication(max_plies=4))
    games: list[FinishedGame] = []
    with Arena(prepare) as arena:
        arena.play(replace(plan, pairings=()), lambda game: True, print)
        assert made == []
        for _ in range(2):
            arena.play(plan, lambda game: games.append(game) is None, print)
        assert made == ["a", "b", "c"] and len(games) == 8
        changed = replace(players[0], limit=Limit(nodes=3))
        two = replace(plan, players=(changed, players[1]), pairings=PAIRINGS[:2])
        arena.play(two, lambda game: False, print)
        assert made == ["a", "b", "c", "a"]
