"""The state of a match: whole after each game, and refused where it is not of this match."""

import json
import os
import re
from pathlib import Path

import pytest

from alphazero.base.errors import AlphaZeroError, DataError
from alphazero.play.matches.game import Ending, FinishedGame, pairings_of
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.players import Player
from alphazero.play.matches.record import MatchRecord
from tests.support.data.match_states import with_checksums

PLAYERS = [Player("a"), Player("b")]
PAIRINGS = list(pairings_of(2, [Opening(), Opening(None, ("e2e4",))]))
SETTINGS = {"--nodes": "2"}


def record(path: Path, pgn: Path | None = None) -> MatchRecord:
    return MatchRecord(PLAYERS, pgn, path, SETTINGS)


def over(number: int, points: float = 1.0) -> FinishedGame:
    return FinishedGame(PAIRINGS[number - 1], points, Ending.NORMAL, "White mates", (), 1.0)


def test_games_are_read_back_by_number_with_points_and_ending(tmp_path) -> None:
    path = tmp_path / "m.json"
    with record(path) as match:
        assert match.games_before(PAIRINGS) == [] and path.exists()
        for number, points in ((2, 0.5), (1, 0.0)):
            match.add(over(number, points))
    with path.open("a") as file:  # what a match that is killed may leave
        file.write('{"number": 3, "po')
    with record(path) as match:
        assert [(game.pairing, game.points, game.ending) for game in match.games_before(PAIRINGS)] == [
            (PAIRINGS[1], 0.5, Ending.NORMAL),
            (PAIRINGS[0], 0.0, Ending.NORMAL),
        ]
        match.add(over(3))
    with record(path) as match:
        assert len(match.games_before(PAIRINGS)) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["m.json"]


def test_two_matches_that_write_to_one_file_are_noticed(tmp_path) -> None:
    with (
        record(tmp_path / "m.json"),
        pytest.raises(DataError, match=r"--resume .*m\.json: another match"),
    ):
        record(tmp_path / "m.json")


HEAD = {"version": 3, "settings": SETTINGS}
GAME = {"number": 1, "points": 1.0, "ending": "normal", "opening": "x", "pgn": ""}


def lines(*tables: object) -> str:
    return with_checksums("".join(json.dumps(table) + "\n" for table in tables).encode()).decode()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "Expecting value"),
        (json.dumps(HEAD) + "\n", "line 1: changed"),
        ("[" * 100_000, "expected the file of a match"),
        ("[1]\n", "expected the file of a match"),
        (json.dumps(HEAD), "expected the file of a match"),
        (lines(HEAD | {"version": 1}), "version 1; expected 3"),
        (lines(HEAD, GAME | {"points": 0.25}), "game 1: 0.25 points"),
        (lines(HEAD, GAME | {"points": float("nan")}), "game 1: nan points"),
        (lines(HEAD, GAME | {"pgn": "\ud800"}), "surrogates not allowed"),
        (lines(HEAD, GAME | {"ending": "tea"}), "'tea' is not a valid Ending"),
        (lines(HEAD, GAME | {"more": 1}), "expected the fields of SavedGame"),
        (lines(HEAD, GAME), "game 1: expected the openings"),
        (lines(HEAD, GAME | {"number": 9}), "game 9: expected each game once, of 4"),
        (b"\xff\xfe", "expected the file of a match"),
        (lines(HEAD | {"settings": {"--nodes": "3"}}), "--nodes '2'; expected '3'"),
    ],
)
def test_what_is_no_state_of_this_match_is_one_line_and_stays_as_it_is(tmp_path, content, told) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = path.read_bytes()
    with pytest.raises(AlphaZeroError, match=rf"--resume .*m\.json: .*{re.escape(told)}") as caught:
        record(path).games_before(PAIRINGS)
    assert "\n" not in str(caught.value) and path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_named_before_the_first_game(tmp_path) -> None:
    with pytest.raises(DataError, match=r"--resume .*none/m\.json: .*No such file or directory"):
        record(tmp_path / "none" / "m.json")


def test_a_pipe_is_refused_at_once(tmp_path) -> None:
    os.mkfifo(tmp_path / "m.json")
    with pytest.raises(DataError, match=r"m\.json: expected a file"):
        record(tmp_path / "m.json")


@pytest.mark.parametrize("left", [None, "", "[Ev", "[Event other]\n\n"])
def test_the_newest_game_is_in_the_pgn_file_once_whatever_a_killed_match_left(tmp_path, left) -> None:
    state, path = tmp_path / "m.json", tmp_path / "m.pgn"
    path.write_text("before\n\n")
    with record(state, path) as match:
        match.add(over(1))
    text = path.read_text().removeprefix("before\n\n")
    if left is not None:
        path.write_text("before\n\n" + left)
    for _ in range(2):
        with record(state, path):
            pass
        kept = left if left and "other" in left else ""
        assert path.read_text() == f"before\n\n{kept}{text}"


def test_a_pgn_file_without_an_earlier_game_is_completed(tmp_path) -> None:
    state, path = tmp_path / "m.json", tmp_path / "m.pgn"
    with record(state, path) as match:
        match.add(over(2))
        match.add(over(1))
    text = path.read_text()
    path.write_text("")
    with record(state, path):
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (b'"points": 0.0', b'"points": 1.0', 2),
        (b'"points": 0.5', b'"points": 1.0', 3),
        (b"[Round", b"[round", 2),
        (b'"normal"', b'"time forfeit"', 2),
        (b'"--nodes": "2"', b'"--nodes": "1"', 1),
    ],
)
def test_a_state_that_was_changed_is_not_believed(tmp_path, old, new, line) -> None:
    state = tmp_path / "m.json"
    with record(state, tmp_path / "m.pgn") as match:
        match.add(over(1, 0.0))
        match.add(over(2, 0.5))
    content = state.read_bytes()
    assert old in content
    games = (tmp_path / "m.pgn").read_bytes()
    state.write_bytes(content.replace(old, new))
    with pytest.raises(DataError, match=rf"m\.json: line {line}: "):
        record(state, tmp_path / "m.pgn")
    lines = content.splitlines(keepends=True)
    for changed in ([lines[0], lines[2], lines[1]], [*lines, lines[2]], [lines[0], lines[2]]):
        state.write_bytes(b"".join(changed))
        with pytest.raises(DataError, match=r"m\.json: line \d: "):
            record(state, tmp_path / "m.pgn")
    assert (tmp_path / "m.pgn").read_bytes() == games
