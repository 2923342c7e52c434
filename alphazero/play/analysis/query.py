"""Queries of the analysis server, a line of JSON each: read and checked before anything is computed.

The protocol follows KataGo's analysis engine (lightvector/KataGo, Analysis_Engine.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import one_of, quoted, reason
from alphazero.games.notation import play_moves
from alphazero.games.registry import make_line
from alphazero.settings.flags import MOST_COUNT
from alphazero.settings.self_play import MOST_SIMULATIONS

ALL_TURNS = "all"
VERSION, TERMINATE, TERMINATE_ALL = "version", "terminate", "terminate_all"
# The fields that each action has beside id and action.
ACTIONS: Mapping[str, tuple[str, ...]] = {
    VERSION: (),
    TERMINATE: ("terminate_id", "turns"),
    TERMINATE_ALL: ("turns",),
}


class QueryError(AlphaZeroError):
    """A line that is no query. id, field: of it, "" where they are not known."""

    kind = "query"

    def __init__(self, text: str, *, query_id: str = "", field: str = "") -> None:
        super().__init__(text)
        self.query_id, self.field = query_id, field

    def answer(self) -> dict[str, Any]:
        """As the server answers it."""
        known = {"id": self.query_id, "field": self.field}
        return {**{name: value for name, value in known.items() if value}, "error": str(self)}


@dataclass(frozen=True)
class QueryDefaults:
    """What queries have that do not name it, and the game of all."""

    game: str
    simulations: int
    lines: int


@dataclass(frozen=True)
class Query:
    """Positions of one game to analyse.

    turns: ascending; turn n is the position after n of the moves. simulations: 0 is the network alone. lines:
    of a search. priority: larger ones go first.
    """

    id: str
    fen: str | None
    moves: tuple[int, ...]
    turns: tuple[int, ...]
    simulations: int
    lines: int
    priority: int


@dataclass(frozen=True)
class QueryAction:
    """Something else than an analysis. body: the whole query, which its answer repeats.

    terminate_id: whose positions are ended, None: all. turns: of these alone, None: all.
    """

    id: str
    action: str
    terminate_id: str | None
    turns: frozenset[int] | None
    body: Mapping[str, Any]


_FIELDS = ("id", "action", "game", *(field.name for field in fields(Query) if field.name != "id"))


def read_query(raw: bytes, number: int, defaults: QueryDefaults) -> Query | QueryAction:
    """The query of a line, the input's `number`th. Raises QueryError."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of thousands of digits
        raise QueryError(f"line {number}: no JSON: {reason(error)}") from None
    if not isinstance(body, dict):
        raise QueryError(f"line {number}: {quoted(body)}: expected a JSON object")
    name = body.get("id")
    if not isinstance(name, str) or not name:
        raise QueryError(f"line {number}: id {quoted(name)}: expected a text that is not empty", field="id")
    reader = _Reader(body, name)
    return reader.action() if "action" in body else reader.query(defaults)


@dataclass(frozen=True)
class _Reader:
    """Reads the fields of one query. Raises QueryError."""

    body: Mapping[str, Any]
    id: str

    def query(self, defaults: QueryDefaults) -> Query:
        self.know(_FIELDS)
        game = self.body.get("game", defaults.game)
        if game != defaults.game:
            raise self.error("game", f"{quoted(game)}: the network plays {defaults.game}")
        fen, texts = self.body.get("fen"), self.body.get("moves", [])
        if not (fen is None or isinstance(fen, str)):
            raise self.error("fen", f"{quoted(fen)}: expected a text")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self.error("moves", f"{quoted(texts)}: expected a list of texts")
        moves = self.moves(defaults.game, fen, texts)
        return Query(
            self.id,
            fen,
            moves,
            self.turns(len(moves)) or (len(moves),),
            self.number("simulations", 0, MOST_SIMULATIONS, defaults.simulations),
            self.number("lines", 1, MOST_COUNT, defaults.lines),
            self.number("priority", -MOST_COUNT, MOST_COUNT, 0),
        )

    def action(self) -> QueryAction:
        action = self.body["action"]
        if not isinstance(action, str) or action not in ACTIONS:
            expected = one_of(action if isinstance(action, str) else "", ACTIONS)
            raise self.error("action", f"{quoted(action)}: {expected}")
        self.know(("id", "action", *ACTIONS[action]))
        ended = self.body.get("terminate_id")
        if action == TERMINATE and not isinstance(ended, str):
            raise self.error("terminate_id", f"{quoted(ended)}: expected the id of a query, a text")
        turns = self.turns(MOST_COUNT)
        return QueryAction(self.id, action, ended, frozenset(turns) if turns else None, self.body)

    def moves(self, game: str, fen: str | None, texts: Sequence[str]) -> tuple[int, ...]:
        """Of the core, in which a game takes less memory."""
        try:
            line = make_line(game, fen)
        except GameInputError as error:
            raise self.error("fen", reason(error)) from None
        try:
            return tuple(play_moves(line, texts, "number"))
        except GameInputError as error:
            raise self.error("moves", reason(error)) from None

    def turns(self, most: int) -> tuple[int, ...]:
        """Ascending, each once; () where none are named."""
        turns = self.body.get("turns")
        if turns is None:
            return ()
        if turns == ALL_TURNS and "action" not in self.body:
            return tuple(range(most + 1))
        is_list = isinstance(turns, list) and bool(turns)
        if not is_list or not all(type(turn) is int and 0 <= turn <= most for turn in turns):
            raise self.error(
                "turns", f'{quoted(turns)}: expected "all" or a list of numbers from 0 to {most}'
            )
        return tuple(sorted(set(turns)))

    def number(self, field: str, low: int, high: int, default: int) -> int:
        value = self.body.get(field)
        if value is None:
            return default
        if type(value) is not int or not low <= value <= high:
            raise self.error(field, f"{quoted(value)}: expected a whole number from {low} to {high}")
        return int(value)

    def know(self, known: Sequence[str]) -> None:
        """Refuse fields beside these."""
        for field in self.body:
            if field not in known:
                raise self.error(field, f"unknown field; {one_of(field, known)}")

    def error(self, field: str, text: str) -> QueryError:
        shown = field if field in _FIELDS or field == "terminate_id" else quoted(field)
        return QueryError(f"{shown}: {text}", query_id=self.id, field=field)
