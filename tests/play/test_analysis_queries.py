"""Lines of JSON as queries: what is read, and what is refused with the name of its field."""

import json
from typing import Any

import chess
import pytest

from alphazero.play.analysis import Query, QueryError, QueryReader

READER = QueryReader("chess", 0, 5)


def read(**body: Any) -> Query:
    return READER.read(json.dumps({"id": "q", **body}).encode(), 7)


def test_what_is_not_named_has_defaults() -> None:
    query = QueryReader("chess", 30, 2).read(b'{"id": "q"}', 1)
    assert (query.id, query.moves, query.turns) == ("q", (), (0,))
    assert (query.simulations, query.lines, query.priority) == (30, 2, 0)


def test_moves_are_read_as_san_and_uci() -> None:
    query = read(moves=["e4", "e7e5", "Nf3", "nc6", "Bb5", "a6", "O-O"], turns=[7, 0, 7, 2], simulations=9)
    assert query.turns == (0, 2, 7) and query.simulations == 9
    board = chess.Board()
    for san in ("e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "O-O"):
        board.push_san(san)
    moves = [(move & 63, move >> 6 & 63) for move in query.moves]
    own = [(move.from_square, move.to_square) for move in board.move_stack]
    assert moves[:-1] == own[:-1] and moves[-1] == (chess.E1, chess.H1)  # king takes rook


def test_all_turns_are_those_of_the_moves() -> None:
    query = read(moves=["d4", "d5"], turns="all", priority=-3)
    assert query.turns == (0, 1, 2) and query.priority == -3
    alone = read(turns="all")
    assert alone.turns == (0,)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"moves": "e4"}, "moves", "expected a list of texts"),
        ({"moves": ["e4", 5]}, "moves", "expected a list of texts"),
        ({"moves": ["e4", "e5", "e5"]}, "moves", "moves: number 3: 'e5': no legal move here"),
        ({"moves": ["\ud800"]}, "moves", "no legal move here"),
        ({"moves": [""]}, "moves", "no legal move here"),
        ({"fen": 3}, "fen", "expected a text"),
        ({"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, "fen", "fen: "),
        ({"fen": "\ud800\0"}, "fen", "fen: "),
        ({"fen": "x" * 100_000}, "fen", "fen: "),
        ({"turns": []}, "turns", 'turns: []: expected "all" or a list of numbers from 0 to 0'),
        ({"turns": "none"}, "turns", "expected"),
        ({"turns": [1], "moves": []}, "turns", "from 0 to 0"),
        ({"turns": [-1], "moves": ["e4"]}, "turns", "from 0 to 1"),
        ({"turns": [True], "moves": ["e4"]}, "turns", "from 0 to 1"),
        ({"turns": [0.0], "moves": ["e4"]}, "turns", "from 0 to 1"),
        ({"turns": {"0": 1}}, "turns", "from 0 to 0"),
        ({"simulations": -1}, "simulations", "expected a whole number from 0 to 1000000"),
        ({"simulations": 10**30}, "simulations", "expected a whole number from 0 to 1000000"),
        ({"simulations": 1e3}, "simulations", "expected a whole number"),
        ({"simulations": float("nan")}, "simulations", "nan: expected a whole number"),
        ({"simulations": True}, "simulations", "expected a whole number"),
        ({"simulations": "100"}, "simulations", "expected a whole number"),
        ({"lines": 0}, "lines", "expected a whole number from 1"),
        ({"priority": 1.5}, "priority", "expected a whole number"),
        ({"game": "go"}, "game", "game: 'go': the network plays chess"),
        ({"game": ["chess"]}, "game", "the network plays chess"),
        ({"simulation": 5}, "simulation", "unknown field; did you mean simulations?"),
        ({"maxVisits": 5}, "maxVisits", "unknown field"),
        ({"x" * 5000: 5}, "x" * 5000, "unknown field"),
        ({"action": "terminate"}, "action", "unknown field"),
    ],
)
def test_a_bad_field_is_named(body: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(QueryError) as refused:
        read(**body)
    answer = {**refused.value.answer, "error": str(refused.value)}
    assert answer["id"] == "q" and answer["field"] == field
    assert words in answer["error"] and "\n" not in answer["error"] and len(answer["error"]) < 700
    json.dumps(answer)


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense",
        b"{",
        b'{"id": "a", "mo',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"id": "a", "priority": ' + b"9" * 5000 + b"}",
        b"[]",
        b'"id"',
        b"null",
        b"{}",
        b'{"id": 5}',
        b'{"id": ""}',
        b'{"id": null}',
        b'{"moves": []}',
    ],
)
def test_a_line_without_an_id_is_named_by_its_number(raw: bytes) -> None:
    with pytest.raises(QueryError, match=r"^line 12: ") as refused:
        READER.read(raw, 12)
    assert "id" not in refused.value.answer and "\n" not in str(refused.value)
