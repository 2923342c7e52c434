"""The analysis server: queries in, a line of JSON each, an answer for each position as soon as it is known.

Many positions are searched at a time, and their leaves share batches. One thread reads and checks queries;
the caller's thread searches and answers.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from alphazero.base.text import counted
from alphazero.games.core_types import Line
from alphazero.games.registry import get_game, make_line
from alphazero.machine.memory import HostMemory
from alphazero.play.analysis.inbox import Inbox, Item
from alphazero.play.analysis.query import (
    TERMINATE_ALL,
    VERSION,
    Query,
    QueryAction,
    QueryDefaults,
    QueryError,
)
from alphazero.play.search_text import analysis_json
from alphazero.search.batched import PoolEvaluator
from alphazero.search.game_trees import Forest, Growth
from alphazero.search.snapshot import Snapshot, snapshot_of
from alphazero.search.tree_search import MEGABYTE, SearchLimits, TreeSettings

if TYPE_CHECKING:
    from alphazero.play.net import Evaluation, Net

# Memory of a position in progress: its tree begins with a block of nodes and one of edges; a simulation takes
# a node with some 40 edges there and a record of the cache, and touches a page of the cache's index, which is
# a ninth of the cache. Measured: 1.5 MB with 100 simulations, 4.2 MB with 1,000, 10 MB with 5,000.
TREE_BYTES, SIMULATION_BYTES, PAGE_BYTES = 2 * MEGABYTE, 800, 4096
INDEX_BYTES = TreeSettings().cache_mb * MEGABYTE // 9
MEMORY_SHARE = 0.5  # of what is free

Answer: TypeAlias = dict[str, Any]


@dataclass(order=True)
class _Waiting:
    """A query of which positions have not begun. The larger priority comes first, then the earlier query."""

    priority: int
    number: int
    query: Query = field(compare=False)
    size: int = field(compare=False)
    line: Line = field(compare=False)
    turns: deque[int] = field(compare=False)

    def next_position(self) -> _Position:
        """The position of the next turn."""
        turn = self.turns.popleft()
        for move in self.query.moves[self.line.num_plies : turn]:
            self.line.push(move)
        return _Position(self.query, turn, self.line.copy())


@dataclass(eq=False)
class _Position:
    """A position in progress. alone: the network's evaluation."""

    query: Query
    turn: int
    line: Line
    alone: Evaluation | None = None
    growth: Growth | None = None
    began: float = 0.0

    @property
    def memory_bytes(self) -> int:
        """That its search takes, about."""
        simulations = self.query.simulations
        return TREE_BYTES + simulations * SIMULATION_BYTES + min(INDEX_BYTES, simulations * PAGE_BYTES)

    def why_not(self) -> str:
        """Why it cannot be analysed, "" where it can; as `analyse` has it."""
        outcome = self.line.outcome()
        if not self.line.legal():
            return f"{self.line}: no legal move, the game is over"
        if self.query.simulations and outcome.over:
            return f"{self.line}: the game is over ({outcome.termination.name.lower()})"
        return ""


class AnalysisServer:
    """Answers queries about positions of the network's game.

    in_flight: positions searched at a time, at most. about: what `version` answers. write: takes a line.
    """

    def __init__(
        self,
        net: Net,
        evaluator: PoolEvaluator,
        settings: TreeSettings,
        defaults: QueryDefaults,
        *,
        fill: str,
        in_flight: int,
        about: Answer,
        write: Callable[[str], None],
    ) -> None:
        self._net, self._evaluator, self._settings = net, evaluator, settings
        self._defaults, self._fill, self._about, self._write = defaults, fill, about, write
        self._most_in_flight = in_flight
        self._memory = HostMemory().check().available_bytes * MEMORY_SHARE
        self._new_tree = get_game(defaults.game).core.game_search
        self._forest = Forest(evaluator, settings)
        self._waiting: list[_Waiting] = []
        self._evaluated: deque[_Position] = deque()  # whose search has not begun
        self._growing: dict[Growth, _Position] = {}
        self._taken = 0  # bytes, by these
        self._num_queries = 0
        self._answered = self._failed = self._evaluations = 0

    def run(self, lines: IO[bytes]) -> str:
        """Answer until the input ends and all is answered; what was done, in words."""
        began = time.monotonic()
        inbox = Inbox(lines, self._defaults)
        while True:
            is_idle = not (self._waiting or self._evaluated or self._growing)
            items, is_over = inbox.take(wait=is_idle)
            for item, size in items:
                self._receive(item, size, inbox)
            if is_over and is_idle and not items:
                break
            self._evaluate_next(inbox)
            self._plant()
            for growth in self._forest.grow():
                self._finish(self._grown(growth))
        seconds = max(time.monotonic() - began, 1e-9)
        failed = f", {counted(self._failed, 'error')}" if self._failed else ""
        return (
            f"{counted(self._answered, 'position')} in {seconds:.1f} s, {self._answered / seconds:,.1f}/s, "
            f"{counted(self._evaluations, 'evaluation')} in searches{failed}"
        )

    def _receive(self, item: Item, size: int, inbox: Inbox) -> None:
        if isinstance(item, Query):
            self._num_queries += 1
            line = make_line(self._defaults.game, item.fen)
            waiting = _Waiting(-item.priority, self._num_queries, item, size, line, deque(item.turns))
            heapq.heappush(self._waiting, waiting)
            return
        inbox.release(size)
        if isinstance(item, QueryError):
            self._failed += 1
            self._send(item.answer())
        elif item.action == VERSION:
            self._send({**item.body, **self._about})
        else:
            self._send(dict(item.body))
            self._terminate(item, inbox)

    def _evaluate_next(self, inbox: Inbox) -> None:
        """Have the network evaluate the next positions by itself, a batch; answers those without a search."""
        if self._evaluated or not self._has_room():
            return
        positions: list[_Position] = []
        while self._waiting and len(positions) < self._evaluator.batch_size:
            first = self._waiting[0]
            position = first.next_position()
            if not first.turns:
                heapq.heappop(self._waiting)
                inbox.release(first.size)
            if trouble := position.why_not():
                self._failed += 1
                self._answer(position, {"error": trouble})
            else:
                positions.append(position)
        found = self._net.evaluate_lines([each.line for each in positions], fill=self._fill)
        for position, position.alone in zip(positions, found, strict=True):
            if position.query.simulations:
                self._evaluated.append(position)
            else:
                self._finish(position)

    def _has_room(self) -> bool:
        """For another search, of the next position that is known; there is always room for one."""
        if not self._growing:
            return True
        taken = self._taken + (self._evaluated[0].memory_bytes if self._evaluated else 0)
        return len(self._growing) < self._most_in_flight and taken <= self._memory

    def _plant(self) -> None:
        """Begin the searches for which there is room."""
        while self._evaluated and self._has_room():
            position = self._evaluated.popleft()
            tree = self._new_tree(self._settings.for_core())
            tree.set_line(position.line)
            tree.begin(())
            position.began = time.monotonic()
            position.growth = self._forest.plant(tree, SearchLimits(nodes=position.query.simulations))
            self._growing[position.growth] = position
            self._taken += position.memory_bytes

    def _grown(self, growth: Growth) -> _Position:
        """The position of a search that is over."""
        position = self._growing.pop(growth)
        self._taken -= position.memory_bytes
        return position

    def _finish(self, position: _Position, more: Answer | None = None) -> None:
        assert position.alone is not None
        found = self._search_of(position)
        if found is not None:
            self._evaluations += found.evaluations
        self._answered += 1
        self._answer(position, {**(more or {}), **analysis_json(position.alone, found, position.query.lines)})

    def _search_of(self, position: _Position) -> Snapshot | None:
        if position.growth is None:
            return None
        view = position.growth.tree.view(position.query.lines)
        return snapshot_of(view, position.line, time.monotonic() - position.began)

    def _terminate(self, action: QueryAction, inbox: Inbox) -> None:
        """End positions of a query, or of all: with what is known of those that are searched."""

        def is_meant(query: Query, turn: int) -> bool:
            of_query = action.action == TERMINATE_ALL or query.id == action.terminate_id
            return of_query and (action.turns is None or turn in action.turns)

        ended = {"terminated": True}
        for position in [each for each in self._growing.values() if is_meant(each.query, each.turn)]:
            assert position.growth is not None
            self._forest.leave(position.growth)
            self._finish(self._grown(position.growth), ended)
        for position in [each for each in self._evaluated if is_meant(each.query, each.turn)]:
            self._evaluated.remove(position)
            self._finish(position, ended)
        for waiting in sorted(self._waiting):
            kept: deque[int] = deque()
            for turn in waiting.turns:
                if is_meant(waiting.query, turn):
                    self._send({"id": waiting.query.id, "turn": turn, **ended})
                else:
                    kept.append(turn)
            waiting.turns = kept
            if not kept:
                inbox.release(waiting.size)
        self._waiting = [waiting for waiting in self._waiting if waiting.turns]
        heapq.heapify(self._waiting)

    def _answer(self, position: _Position, answer: Answer) -> None:
        self._send({"id": position.query.id, "turn": position.turn, **answer})

    def _send(self, answer: Answer) -> None:
        self._write(json.dumps(answer))
