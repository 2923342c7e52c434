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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Queue
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import counted, one_of, quoted, reason, shortened
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
MOST_WAITING = 10_000  # positions, before more queries are read
LINES_AHEAD = 16  # read before the searches look at them
# Memory of a position in progress, whose tree and cache begin with whole blocks, and of each simulation.
# Measured: 1.5 MB with 100 simulations, 4.2 MB with 1,000, 10 MB with 5,000.
POSITION_BYTES, SIMULATION_BYTES = 6 * MEGABYTE, 1000
MEMORY_SHARE = 0.5  # of what is free

Answer: TypeAlias = dict[str, Any]
FIELDS = ("id", "game", "fen", "moves", "turns", "simulations", "lines", "priority")


class QueryError(AlphaZeroError):
    """A line that cannot be used. answer: as the server answers it, without the error."""

    def __init__(self, text: str, answer: Answer) -> None:
        super().__init__(text)
        self.answer = answer


@dataclass(eq=False)
class Query:
    """Positions of one game to analyse.

    line: where the next turn continues. turns: ascending, turn n being the position after n of the moves.
    simulations: 0 is the network alone. lines: of a search. priority: larger ones go first.
    """

    id: str
    line: Line
    moves: tuple[int, ...]
    turns: tuple[int, ...]
    simulations: int
    lines: int
    priority: int


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
        for field_name in body:
            if field_name not in FIELDS:
                raise _refused(body, field_name, f"unknown field; {one_of(field_name, FIELDS)}")
        if body.get("game", self.game) != self.game:
            raise _refused(body, "game", f"the network plays {self.game}")
        fen, texts = body.get("fen"), body.get("moves", [])
        if not (fen is None or isinstance(fen, str)):
            raise _refused(body, "fen", "expected a text")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _refused(body, "moves", "expected a list of texts")
        at = "fen"
        try:
            line = make_line(self.game, fen)
            at = "moves"
            moves = tuple(play_moves(line.copy(), texts, "number"))
        except GameInputError as error:
            raise QueryError(f"{at}: {reason(error)}", {"id": name, "field": at}) from None
        return Query(
            name,
            line,
            moves,
            _turns(body, len(moves)),
            _number(body, "simulations", 0, MOST_SIMULATIONS, self.simulations),
            _number(body, "lines", 1, MOST_COUNT, self.lines),
            _number(body, "priority", -MOST_COUNT, MOST_COUNT, 0),
        )


def _refused(body: Answer, name: str, expected: str) -> QueryError:
    text = f"{shortened(name)}: {quoted(body.get(name))}: {expected}"
    return QueryError(text, {"id": body["id"], "field": name})


def _turns(body: Answer, most: int) -> tuple[int, ...]:
    """Ascending, each once; the last where none are named."""
    turns = body.get("turns", [most])
    if turns == "all":
        return tuple(range(most + 1))
    is_list = isinstance(turns, list) and bool(turns)
    if not is_list or not all(type(turn) is int and 0 <= turn <= most for turn in turns):
        raise _refused(body, "turns", f'expected "all" or a list of numbers from 0 to {most}')
    return tuple(sorted(set(turns)))


def _number(body: Answer, name: str, low: int, high: int, default: int) -> int:
    value = body.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise _refused(body, name, f"expected a whole number from {low} to {high}")
    return int(value)


@dataclass
class _Position:
    """A turn of a query under way. alone: the network's evaluation. began: when its search did."""

    query: Query
    turn: int
    line: Line
    alone: Evaluation | None = None
    began: float = 0.0


class AnalysisServer:
    """Answers queries about positions of the network's game.

    in_flight: positions searched at a time, at most. write: takes a line.
    """

    def __init__(
        self,
        net: Net,
        evaluator: PoolEvaluator,
        settings: TreeSettings,
        reader: QueryReader,
        in_flight: int,
        write: Callable[[str], None],
    ) -> None:
        self._net, self._evaluator, self._settings = net, evaluator, settings
        self._reader, self._write, self._most_in_flight = reader, write, in_flight
        self._memory = read_memory().available_bytes * MEMORY_SHARE
        self._forest = Forest(evaluator, settings)
        self._waiting: list[tuple[int, int, int, Query]] = []  # a heap, by priority, query and turn
        self._evaluated: deque[_Position] = deque()  # whose search has not begun
        self._growing: dict[Growth, _Position] = {}
        self._num_queries = self._answered = self._failed = 0

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
            while is_open and (is_idle or (len(self._waiting) < MOST_WAITING and not items.empty())):
                item = items.get()
                is_open, is_idle = item is not None, False
                if item is not None:
                    self._receive(item)
            self._evaluate_next()
            self._plant()
            for growth in self._forest.grow():
                self._finish(self._growing.pop(growth), growth)
        seconds = max(time.monotonic() - began, 1e-9)
        failed = f", {counted(self._failed, 'error')}" if self._failed else ""
        speed = f"{self._answered / seconds:,.1f}/s{failed}"
        return f"{counted(self._answered, 'position')} in {seconds:.1f} s, {speed}"

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
        else:
            self._num_queries += 1
            for turn in item.turns:
                heapq.heappush(self._waiting, (-item.priority, self._num_queries, turn, item))

    def _evaluate_next(self) -> None:
        """Have the network evaluate the next positions by itself, a batch; answers those without a search."""
        if self._evaluated or not self._has_room():
            return
        positions: list[_Position] = []
        while self._waiting and len(positions) < self._evaluator.batch_size:
            *_, turn, query = heapq.heappop(self._waiting)
            for move in query.moves[query.line.num_plies : turn]:
                query.line.push(move)
            try:
                require_move(query.line)
                positions.append(_Position(query, turn, query.line.copy()))
            except GameInputError as error:
                self._failed += 1
                self._write(json.dumps({"id": query.id, "turn": turn, "error": str(error)}))
        evaluations = self._net.evaluate_lines([each.line for each in positions])
        for position, alone in zip(positions, evaluations, strict=True):
            position.alone = alone
            if position.query.simulations:
                self._evaluated.append(position)
            else:
                self._finish(position)

    def _has_room(self) -> bool:
        """For another search, of the next position that is known; there is always room for one."""
        searched = [*self._growing.values(), *list(self._evaluated)[:1]]
        taken = sum(POSITION_BYTES + SIMULATION_BYTES * each.query.simulations for each in searched)
        return not self._growing or (len(self._growing) < self._most_in_flight and taken <= self._memory)

    def _plant(self) -> None:
        """Begin the searches for which there is room."""
        while self._evaluated and self._has_room():
            position = self._evaluated.popleft()
            tree = get_game(self._net.game).core.game_search(self._settings.for_core())
            tree.set_line(position.line)
            tree.begin(())
            position.began = time.monotonic()
            growth = self._forest.plant(tree, SearchLimits(nodes=position.query.simulations))
            self._growing[growth] = position

    def _finish(self, position: _Position, growth: Growth | None = None) -> None:
        """Answer with what is known. growth: of its search."""
        assert position.alone is not None
        query, snapshot = position.query, None
        if growth is not None:
            seconds = time.monotonic() - position.began
            snapshot = snapshot_of(growth.tree.view(query.lines), position.line, seconds)
        self._answered += 1
        known = analysis_json(position.alone, snapshot, query.lines)
        self._write(json.dumps({"id": query.id, "turn": position.turn, **known}))


def _whole_lines(lines: IO[bytes]) -> Iterator[bytes]:
    """Lines; a line that is too long is cut."""
    while raw := lines.readline(LONGEST_LINE + 1):
        rest = raw
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = lines.readline(LONGEST_LINE + 1)
        yield raw
