"""The analysis server: queries in, a line of JSON each, an answer for each position as soon as it is known.

Many positions are searched at a time, and their leaves share batches. One thread reads and checks queries;
the caller's thread searches and answers. The protocol follows KataGo's analysis engine (lightvector/KataGo,
Analysis_Engine.md).
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Queue
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import counted, one_of, quoted, reason
from alphazero.games.core_types import Line
from alphazero.games.lines import require_move
from alphazero.games.notation import play_moves
from alphazero.games.registry import get_game, make_line
from alphazero.machine.memory import read_memory
from alphazero.play.search_text import analysis_json
from alphazero.search.batched import PoolEvaluator
from alphazero.search.game_trees import Forest, Growth
from alphazero.search.snapshot import snapshot_of
from alphazero.search.tree_search import MEGABYTE, SearchLimits, TreeSettings
from alphazero.settings.flags import MOST_COUNT
from alphazero.settings.self_play import MOST_SIMULATIONS

if TYPE_CHECKING:
    from alphazero.play.net import Evaluation, Net

LONGEST_LINE = 2**20  # bytes of a query
MOST_HELD = 2**24  # bytes of the queries that wait for their searches
LINES_AHEAD = 16  # read before the searches look at them
# Memory of a position in progress, whose tree and cache begin with whole blocks, and of each simulation.
# Measured: 1.5 MB with 100 simulations, 4.2 MB with 1,000, 10 MB with 5,000.
POSITION_BYTES, SIMULATION_BYTES = 6 * MEGABYTE, 1000
MEMORY_SHARE = 0.5  # of what is free

Answer: TypeAlias = dict[str, Any]
FIELDS = ("id", "action", "game", "fen", "moves", "turns", "simulations", "lines", "priority")
# The fields that each action has beside id and action.
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "version": (),
    "terminate": ("terminate_id", "turns"),
    "terminate_all": ("turns",),
}


class QueryError(AlphaZeroError):
    """A line that cannot be used. answer: as the server answers it, without the error."""

    def __init__(self, text: str, answer: Answer) -> None:
        super().__init__(text)
        self.answer = answer


@dataclass(eq=False)
class Query:
    """Positions of one game to analyse, or an action. body: as it came.

    turns: ascending, turn n being the position after n of the moves; of an action, those meant, () for all.
    simulations: 0 is the network alone. lines: of a search. priority: larger ones go first. line: where the
    next turn continues. num_bytes: of its text, a turn.
    """

    id: str
    body: Mapping[str, Any]
    turns: tuple[int, ...]
    action: str = ""
    line: Line | None = None
    moves: tuple[int, ...] = ()
    simulations: int = 0
    lines: int = 1
    priority: int = 0
    num_bytes: int = 0


@dataclass(frozen=True)
class QueryReader:
    """Reads queries of a game. simulations, lines: of queries that do not name them."""

    game: str
    simulations: int
    lines: int

    def read(self, raw: bytes, number: int) -> Query:
        """The query of a line, the input's `number`th. Raises QueryError."""
        if len(raw) > LONGEST_LINE:
            raise QueryError(f"line {number}: more than {LONGEST_LINE:,} bytes", {})
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of thousands of digits
            raise QueryError(f"line {number}: no JSON: {reason(error)}", {}) from None
        if not isinstance(body, dict):
            raise QueryError(f"line {number}: {quoted(body)}: expected a JSON object", {})
        name = body.get("id")
        if not isinstance(name, str) or not name:
            expected = "expected a text that is not empty"
            raise QueryError(f"line {number}: id {quoted(name)}: {expected}", {"field": "id"})
        query = self._action(name, body) if "action" in body else self._positions(name, body)
        query.num_bytes = len(raw) // max(1, len(query.turns))
        return query

    def _positions(self, name: str, body: Mapping[str, Any]) -> Query:
        _refuse_unknown(body, FIELDS)
        if (game := body.get("game", self.game)) != self.game:
            raise _refused(body, "game", f"{quoted(game)}: the network plays {self.game}")
        fen, texts = body.get("fen"), body.get("moves", [])
        if not (fen is None or isinstance(fen, str)):
            raise _refused(body, "fen", f"{quoted(fen)}: expected a text")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _refused(body, "moves", f"{quoted(texts)}: expected a list of texts")
        at = "fen"
        try:
            line = make_line(self.game, fen)
            at = "moves"
            moves = tuple(play_moves(line.copy(), texts, "number"))
        except GameInputError as error:
            raise _refused(body, at, reason(error)) from None
        return Query(
            name,
            body,
            _turns(body, len(moves)) or (len(moves),),
            line=line,
            moves=moves,
            simulations=_number(body, "simulations", 0, MOST_SIMULATIONS, self.simulations),
            lines=_number(body, "lines", 1, MOST_COUNT, self.lines),
            priority=_number(body, "priority", -MOST_COUNT, MOST_COUNT, 0),
        )

    def _action(self, name: str, body: Mapping[str, Any]) -> Query:
        action = body["action"]
        if not isinstance(action, str) or action not in ACTIONS:
            expected = one_of(action if isinstance(action, str) else "", ACTIONS)
            raise _refused(body, "action", f"{quoted(action)}: {expected}")
        _refuse_unknown(body, ("id", "action", *ACTIONS[action]))
        ended = body.get("terminate_id")
        if action == "terminate" and not isinstance(ended, str):
            raise _refused(body, "terminate_id", f"{quoted(ended)}: expected the id of a query, a text")
        return Query(name, body, _turns(body, MOST_COUNT), action)


def _refused(body: Mapping[str, Any], name: str, text: str) -> QueryError:
    shown = name if name in FIELDS or name == "terminate_id" else quoted(name)
    return QueryError(f"{shown}: {text}", {"id": body["id"], "field": name})


def _refuse_unknown(body: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in body:
        if name not in known:
            raise _refused(body, name, f"unknown field; {one_of(name, known)}")


def _turns(body: Mapping[str, Any], most: int) -> tuple[int, ...]:
    """Ascending, each once; () where none are named."""
    turns = body.get("turns")
    if turns is None:
        return ()
    if turns == "all" and "action" not in body:
        return tuple(range(most + 1))
    is_list = isinstance(turns, list) and bool(turns)
    if not is_list or not all(type(turn) is int and 0 <= turn <= most for turn in turns):
        raise _refused(
            body, "turns", f'{quoted(turns)}: expected "all" or a list of numbers from 0 to {most}'
        )
    return tuple(sorted(set(turns)))


def _number(body: Mapping[str, Any], name: str, low: int, high: int, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise _refused(body, name, f"{quoted(value)}: expected a whole number from {low} to {high}")
    return int(value)


@dataclass(order=True)
class _Position:
    """A turn of a query. The larger priority comes first, then the earlier query.

    line, alone (the network's evaluation) and growth are known as far as it has come.
    """

    priority: int
    number: int
    turn: int
    query: Query = field(compare=False)
    line: Line | None = field(default=None, compare=False)
    alone: Evaluation | None = field(default=None, compare=False)
    growth: Growth | None = field(default=None, compare=False)
    began: float = field(default=0.0, compare=False)


class AnalysisServer:
    """Answers queries about positions of the network's game.

    in_flight: positions searched at a time, at most. about: what `version` answers. write: takes a line.
    """

    def __init__(
        self,
        net: Net,
        evaluator: PoolEvaluator,
        settings: TreeSettings,
        reader: QueryReader,
        *,
        fill: str,
        in_flight: int,
        about: Answer,
        write: Callable[[str], None],
    ) -> None:
        self._net, self._evaluator, self._settings = net, evaluator, settings
        self._reader, self._fill, self._about, self._write = reader, fill, about, write
        self._most_in_flight = in_flight
        self._memory = read_memory().available_bytes * MEMORY_SHARE
        self._forest = Forest(evaluator, settings)
        self._waiting: list[_Position] = []  # a heap
        self._evaluated: deque[_Position] = deque()  # whose search has not begun
        self._growing: list[_Position] = []
        self._held = 0  # bytes of the queries of which positions wait
        self._num_queries = self._answered = self._failed = self._evaluations = 0

    def run(self, lines: IO[bytes]) -> str:
        """Answer until the input ends and all is answered; what was done, in words."""
        began = time.monotonic()
        items: Queue[Query | Exception | None] = Queue(LINES_AHEAD)
        threading.Thread(target=self._read, args=(lines, items), name="queries", daemon=True).start()
        is_open = True
        while True:
            is_idle = not (self._waiting or self._evaluated or self._growing)
            if is_idle and not is_open:
                break
            while is_open and (is_idle or (self._held < MOST_HELD and not items.empty())):
                item = items.get()
                is_open, is_idle = item is not None, False
                if item is not None:
                    self._receive(item)
            self._evaluate_next()
            self._plant()
            for growth in self._forest.grow():
                self._finish(next(each for each in self._growing if each.growth is growth))
        seconds = max(time.monotonic() - began, 1e-9)
        failed = f", {counted(self._failed, 'error')}" if self._failed else ""
        return (
            f"{counted(self._answered, 'position')} in {seconds:.1f} s, {self._answered / seconds:,.1f}/s, "
            f"{counted(self._evaluations, 'evaluation')} in searches{failed}"
        )

    def _read(self, lines: IO[bytes], items: Queue[Query | Exception | None]) -> None:
        """In its own thread: put queries, what is wrong with them, and None at the end."""
        try:
            for number, raw in enumerate(_whole_lines(lines), start=1):
                try:
                    if not raw.isspace():
                        items.put(self._reader.read(raw, number))
                except QueryError as error:
                    items.put(error)
            items.put(None)
        except Exception as error:  # of any kind: the other thread raises it
            items.put(error)

    def _receive(self, item: Query | Exception) -> None:
        if isinstance(item, QueryError):
            self._failed += 1
            self._write(json.dumps({**item.answer, "error": str(item)}))
        elif isinstance(item, Exception):
            raise item
        elif item.action:
            self._write(json.dumps({**item.body, **(self._about if item.action == "version" else {})}))
            if item.action != "version":
                self._terminate(item)
        else:
            self._num_queries += 1
            self._held += item.num_bytes * len(item.turns)
            for turn in item.turns:
                heapq.heappush(self._waiting, _Position(-item.priority, self._num_queries, turn, item))

    def _evaluate_next(self) -> None:
        """Have the network evaluate the next positions by itself, a batch; answers those without a search."""
        if self._evaluated or not self._has_room():
            return
        positions: list[_Position] = []
        while self._waiting and len(positions) < self._evaluator.batch_size:
            position = heapq.heappop(self._waiting)
            query, turn, line = position.query, position.turn, position.query.line
            assert line is not None
            for move in query.moves[line.num_plies : turn]:
                line.push(move)
            position.line = line.copy()
            self._held -= query.num_bytes
            try:
                require_move(line)
                positions.append(position)
            except GameInputError as error:
                self._answer(position, {"error": str(error)})
        found = self._net.evaluate_lines([each.line for each in positions if each.line], fill=self._fill)
        for position, position.alone in zip(positions, found, strict=True):
            if position.query.simulations:
                self._evaluated.append(position)
            else:
                self._finish(position)

    def _has_room(self) -> bool:
        """For another search, of the next position that is known; there is always room for one."""
        searched = [*self._growing, *list(self._evaluated)[:1]]
        taken = sum(POSITION_BYTES + SIMULATION_BYTES * each.query.simulations for each in searched)
        return not self._growing or (len(self._growing) < self._most_in_flight and taken <= self._memory)

    def _plant(self) -> None:
        """Begin the searches for which there is room."""
        while self._evaluated and self._has_room():
            position = self._evaluated.popleft()
            assert position.line is not None
            tree = get_game(self._net.game).core.game_search(self._settings.for_core())
            tree.set_line(position.line)
            tree.begin(())
            position.began = time.monotonic()
            position.growth = self._forest.plant(tree, SearchLimits(nodes=position.query.simulations))
            self._growing.append(position)

    def _finish(self, position: _Position, more: Answer | None = None) -> None:
        """Answer with what is known."""
        assert position.alone is not None and position.line is not None
        found = None
        if position.growth is not None:
            self._growing.remove(position)
            view = position.growth.tree.view(position.query.lines)
            found = snapshot_of(view, position.line, time.monotonic() - position.began)
            self._evaluations += found.evaluations
        self._answered += 1
        self._answer(position, {**(more or {}), **analysis_json(position.alone, found, position.query.lines)})

    def _terminate(self, action: Query) -> None:
        """End positions of a query, or of all, with what is known of them."""
        named = action.body.get("terminate_id")

        def is_meant(position: _Position) -> bool:
            is_turn = not action.turns or position.turn in action.turns
            return is_turn and named in (None, position.query.id)

        ended = {"terminated": True}
        for position in filter(is_meant, [*self._growing, *self._evaluated]):
            if position.growth is not None:
                self._forest.leave(position.growth)
            else:
                self._evaluated.remove(position)
            self._finish(position, ended)
        for position in filter(is_meant, sorted(self._waiting)):
            self._held -= position.query.num_bytes
            self._answer(position, ended)
        self._waiting = sorted(each for each in self._waiting if not is_meant(each))

    def _answer(self, position: _Position, answer: Answer) -> None:
        self._failed += "error" in answer
        self._write(json.dumps({"id": position.query.id, "turn": position.turn, **answer}))


def _whole_lines(lines: IO[bytes]) -> Iterator[bytes]:
    """Lines; a line that is too long is cut."""
    while raw := lines.readline(LONGEST_LINE + 1):
        rest = raw
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = lines.readline(LONGEST_LINE + 1)
        yield raw
