"""The state of a match: whole after each game, and refused where it is not of this match."""

import json
import os
import re

import pytest

from alphazero.base.errors import DataError
from alphazero.play.matches.game import Ending, FinishedGame, games_of
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.pgn import Appended, PgnFile
from alphazero.play.matches.saved import SavedMatch

PAIRINGS = list(games_of([(0, 1)], [Opening(), Opening(None, ("e2e4",))]))
SETTINGS = {"--nodes": "2"}


def over(number: int, points: float = 1.0) -> FinishedGame:
    return FinishedGame(PAIRINGS[number - 1], points, Ending.NORMAL, "White mates", (), 1.0)


def test_games_are_read_back_by_number_with_points_and_ending(tmp_path) -> None:
    path = tmp_path / "m.json"
    match = SavedMatch.open(path, SETTINGS)
    assert match.games(PAIRINGS) == [] and path.exists()
    for number, points in ((2, 0.5), (1, 0.0)):
        match.add(over(number, points), Appended(number, "text"))
    again = SavedMatch.open(path, SETTINGS)
    assert [(game.pairing, game.points, game.ending) for game in again.games(PAIRINGS)] == [
        (PAIRINGS[1], 0.5, Ending.NORMAL),
        (PAIRINGS[0], 0.0, Ending.NORMAL),
    ]
    assert again.last == Appended(1, "text")
    assert [file.name for file in tmp_path.iterdir()] == ["m.json"]


def test_two_matches_that_write_to_one_file_are_noticed(tmp_path) -> None:
    first = SavedMatch.open(tmp_path / "m.json", SETTINGS)
    second = SavedMatch.open(tmp_path / "m.json", SETTINGS)
    first.add(over(1), None)
    with pytest.raises(DataError, match=r"m\.json: changed by another process; expected one match"):
        second.add(over(1), None)


GAME = {"number": 1, "points": 1.0, "ending": "normal", "opening": "x"}
STATE = {"version": 1, "settings": SETTINGS, "games": [], "last": None}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "expected the file of a match"),
        ("[1]", "expected the file of a match"),
        (json.dumps(STATE | {"version": 2}), "version 2; expected 1"),
        (json.dumps(STATE | {"games": [GAME | {"points": 0.25}]}), "game 1: 0.25 points"),
        (json.dumps(STATE | {"games": [GAME | {"points": float("nan")}]}), "game 1: nan points"),
        (json.dumps(STATE | {"games": [GAME | {"ending": "tea"}]}), "'tea' is not a valid Ending"),
        (json.dumps(STATE | {"games": [GAME | {"more": 1}]}), "expected the fields of SavedGame"),
        (
            json.dumps(STATE | {"games": [GAME]}),
            "game 1: expected the openings with which",
        ),
        (json.dumps(STATE | {"games": [GAME | {"number": 9}]}), "game 9: expected each game once, of 4"),
        (b"\xff\xfe", "expected the file of a match"),
    ],
)
def test_what_is_no_state_of_this_match_is_one_line(tmp_path, content, told) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rf"--resume .*m\.json: .*{re.escape(told)}") as caught:
        SavedMatch.open(path, SETTINGS).games(PAIRINGS)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_written_is_named_before_the_first_game(tmp_path) -> None:
    with pytest.raises(
        DataError, match=r"--resume .*none/m\.json: cannot be written: No such file or directory"
    ):
        SavedMatch.open(tmp_path / "none" / "m.json", SETTINGS)


def test_a_pipe_is_refused_at_once(tmp_path) -> None:
    os.mkfifo(tmp_path / "m.json")
    with pytest.raises(DataError, match=r"m\.json: expected a file"):
        SavedMatch.open(tmp_path / "m.json", SETTINGS)


@pytest.mark.parametrize("left", ["", "[Ev", "[Event one]\n\n", "[Event other]\n\n"])
def test_the_newest_game_is_in_the_pgn_file_once_whatever_a_killed_match_left(tmp_path, left) -> None:
    path = tmp_path / "m.pgn"
    path.write_text("before\n\n" + left)
    with PgnFile(path, "a match") as file:
        file.restore(Appended(8, "[Event one]\n\n"))
        file.restore(Appended(8, "[Event one]\n\n"))
    kept = left if "other" in left else ""
    assert path.read_text() == f"before\n\n{kept}[Event one]\n\n" + ("[Event one]\n\n" if kept else "")
    with (
        PgnFile(path, "a match") as file,
        pytest.raises(DataError, match="expected at least 800, as when"),
    ):
        file.restore(Appended(800, "[Event one]\n\n"))
