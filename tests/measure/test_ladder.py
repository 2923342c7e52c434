"""A ladder estimated by games: simulated rungs are found where they are, and their games are played once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from alphazero.measure.elo import MatchScore
from alphazero.measure.ladder import PAIRS, SIMULATIONS, EstimatedLadder, Ladder
from alphazero.play.matches.players import Player
from tests.measure.test_bradley_terry import played

GAME = "openspiel:hex(board_size=3)"
TRUE = {"random": 0.0, **{f"mcts-{number}": 120.0 * place for place, number in enumerate(SIMULATIONS, 1)}}


class Match:
    """Games of simulated players. fails_at: the call that fails."""

    def __init__(self, seed: int = 0, fails_at: int = -1) -> None:
        self.generator = np.random.default_rng(seed)
        self.calls: list[tuple[str, str, int, int]] = []
        self.fails_at = fails_at

    def __call__(self, high: Player, low: Player, first: int, pairs: int) -> MatchScore:
        if len(self.calls) == self.fails_at:
            raise KeyboardInterrupt
        self.calls.append((high.name, low.name, first, pairs))
        return played(TRUE[high.name] - TRUE[low.name], pairs, self.generator, draws=0.2)


def estimated(match: Match, directory: Path, game: str = GAME) -> Ladder:
    return EstimatedLadder(game, directory).estimate(match)


def pairs_of(match: Match) -> dict[str, list[int]]:
    """By the stronger of two neighbours: the numbers of the pairs that they played."""
    found: dict[str, list[int]] = {}
    for high, _, first, pairs in match.calls:
        found.setdefault(high, []).extend(range(first, first + pairs))
    return found


def test_rungs_are_found_where_they_are_with_random_play_at_zero(tmp_path: Path) -> None:
    errors = []
    for seed in range(20):
        ladder = estimated(Match(seed), tmp_path / str(seed))
        assert [rung.player.name for rung in ladder.rungs] == list(TRUE) and ladder.rungs[0].rating == 0.0
        assert "0 by definition" in ladder.scale
        errors.append([rung.rating - TRUE[rung.player.name] for rung in ladder.rungs[1:]])
    # The standard error of 48 games is some 50 Elo a step: 125 over all six, and of the mean a fifth of it.
    assert np.abs(np.mean(errors, axis=0)).max() < 80
    assert np.std(errors, axis=0)[-1] < 200


def test_who_wins_every_game_has_a_finite_rating_far_above(tmp_path: Path) -> None:
    def play(high: Player, low: Player, first: int, pairs: int) -> MatchScore:
        if low.name == "random":
            return MatchScore(2 * pairs, 0, 0, (0, 0, 0, 0, pairs))
        return MatchScore(0, 2 * pairs, 0, (0, 0, pairs, 0, 0))

    rungs = EstimatedLadder(GAME, tmp_path).estimate(play).rungs
    assert 400 < rungs[1].rating < 2000
    assert all(abs(rung.rating - rungs[1].rating) < 30 for rung in rungs[2:])


def test_a_ladder_is_played_once_and_each_game_has_its_own(tmp_path: Path) -> None:
    match, again, other = Match(1), Match(2), Match(3)
    first = estimated(match, tmp_path)
    assert pairs_of(match) == {name: list(range(PAIRS)) for name in list(TRUE)[1:]}
    assert estimated(again, tmp_path) == first and not again.calls
    assert EstimatedLadder(GAME, tmp_path).games_left == 0
    assert estimated(other, tmp_path, "nim.py:Nim@0123456789ab").digest != first.digest and other.calls


def test_an_interrupted_ladder_continues_with_the_games_that_are_missing(tmp_path: Path) -> None:
    broken, rest = Match(1, fails_at=5), Match(2)
    with pytest.raises(KeyboardInterrupt):
        estimated(broken, tmp_path)
    assert EstimatedLadder(GAME, tmp_path).games_left == 12 * PAIRS - 2 * sum(
        map(len, pairs_of(broken).values())
    )
    estimated(rest, tmp_path)
    together = {
        name: pairs_of(broken).get(name, []) + pairs_of(rest).get(name, []) for name in list(TRUE)[1:]
    }
    assert together == {name: list(range(PAIRS)) for name in list(TRUE)[1:]}


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: "no JSON",
        lambda kept: "[]",
        lambda kept: json.dumps({**kept, "mcts-10": 5}),
        lambda kept: json.dumps({"mcts-11": kept["mcts-10"]}),
        lambda kept: json.dumps({**kept, "mcts-10": {**kept["mcts-10"], "wins": "many"}}),
    ],
)
def test_a_damaged_file_is_played_again(tmp_path: Path, damage) -> None:
    estimated(Match(1), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(damage(json.loads(file.read_text())))
    match = Match(2)
    estimated(match, tmp_path)
    assert len(match.calls) == 18 and len(json.loads(file.read_text())) == 6


def test_a_ladder_that_cannot_be_kept_is_played_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert estimated(Match(1), tmp_path / "file").rungs[-1].rating > 0
