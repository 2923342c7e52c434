"""Games as PGN, read back by python-chess."""

import io
from dataclasses import replace

import chess.pgn
import pytest

from alphazero.base.errors import DataError
from alphazero.play.matches.game import Decision, Ending, FinishedGame, Pairing, Score
from alphazero.play.matches.limits import Limit, TimeControl
from alphazero.play.matches.openings import Opening
from alphazero.play.matches.players import Player
from alphazero.play.matches.record import MatchRecord, pgn_of

PLAYERS = [
    Player("alpha", limit=Limit(nodes=100)),
    Player("beta", limit=Limit(control=TimeControl(1, 0.05))),
]
MATE = FinishedGame(
    Pairing(3, 1, 1, 0, Opening(None, ("f2f3", "e7e5"))),
    0.0,
    Ending.NORMAL,
    "Black mates",
    (Decision("g2g4", Score(-35), 7, 0, 0.05), Decision("d8h4", Score(mate=1), 0, 800, 0.1)),
    3700.2,
)
CASTLES = FinishedGame(
    Pairing(4, 1, 0, 1, Opening("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")),
    0.5,
    Ending.ADJUDICATION,
    "Draw by adjudication",
    (Decision("e1g1"), Decision("e8c8")),
    0.0,
)


def test_a_game_keeps_its_players_moves_scores_and_end() -> None:
    game = chess.pgn.read_game(io.StringIO(pgn_of(MATE, PLAYERS)))
    assert game is not None and not game.errors
    assert dict(game.headers) | {"Date": ""} == {
        "Event": "alphazero match",
        "Site": "?",
        "Date": "",
        "Round": "3",
        "White": "beta",
        "Black": "alpha",
        "Result": "0-1",
        "Termination": "normal",
        "PlyCount": "4",
        "GameDuration": "01:01:40",
        "WhiteTimeControl": "1+0.05",
        "BlackTimeControl": "100 nodes",
    }
    nodes = list(game.mainline())
    assert [node.san() for node in nodes] == ["f3", "e5", "g4", "Qh4#"]
    assert [node.comment for node in nodes] == [
        "book",
        "book",
        "-0.35/7 0.050s",
        "+M1/0 0.100s, n=800, Black mates",
    ]


def test_a_game_from_a_position_has_it_and_castles() -> None:
    game = chess.pgn.read_game(io.StringIO(pgn_of(CASTLES, PLAYERS)))
    assert game is not None and not game.errors
    assert game.headers["FEN"] == CASTLES.pairing.opening.start and game.headers["SetUp"] == "1"
    assert [node.san() for node in game.mainline()] == ["O-O", "O-O-O"]
    assert game.headers["Termination"] == "adjudication" and game.headers["Result"] == "1/2-1/2"


def test_quotes_and_backslashes_of_names_are_escaped_as_the_pgn_standard_has_it() -> None:
    text = pgn_of(MATE, [replace(PLAYERS[0], name='a"b\\c'), PLAYERS[1]])
    assert '[Black "a\\"b\\\\c"]' in text


def test_games_are_appended_one_by_one_and_each_is_whole_at_once(tmp_path) -> None:
    path = tmp_path / "match.pgn"
    for game in (MATE, CASTLES):
        with MatchRecord(PLAYERS, path) as record:
            record.add(game)
            text = path.read_text()  # the file is still open
            assert text.endswith("\n\n")
    stream = io.StringIO(text)
    found = [chess.pgn.read_game(stream) for _ in range(3)]
    assert [game and game.headers["Round"] for game in found] == ["3", "4", None]


def test_a_file_that_cannot_be_written_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"--pgn-out .*none.*cannot be written"):
        MatchRecord(PLAYERS, tmp_path / "none" / "match.pgn")
