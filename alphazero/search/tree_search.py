"""One tree for a whole game: set a line, search it, look at it, stop it from another thread.

The tree is kept where the next line is the last one with more moves. docs/search.md has the rules and their
sources; any game of the registry can be searched.

    search = TreeSearch("chess", evaluator)
    search.set_line(line)
    found = search.search(SearchLimits(nodes=800))
    found.best.text, found.best.wdl, found.best.pv
"""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeAlias

import alphazero._core as _core
from alphazero.games.board import Board
from alphazero.games.core_types import GameSearch, Leaves, Line
from alphazero.games.notation import legal_move
from alphazero.games.outside.rules import State
from alphazero.games.registry import get_game, make_line
from alphazero.search.batched import Evaluator, Pending
from alphazero.search.snapshot import Snapshot, snapshot_of
from alphazero.search.tables import Results, SearchTables, decided

Batch: TypeAlias = tuple[int, Pending, Results]

MEGABYTE = 2**20
MOST_NODES = 2**62
NUM_SLOTS = 4  # of the core: batches on their way
# A batch has at most one leaf for so many visits of the root: a small tree of many leaves that do not know
# of each other is a worse one.
VISITS_PER_LEAF = 8
LAST_BATCH_S = 1.0  # that the end of the process waits for


@dataclass(frozen=True)
class TreeSettings:
    """Numbers of the search; the defaults are lc0's for chess (docs/search.md).

    minibatch_size: the most positions of one evaluation (0: as many as the evaluator takes).
    in_flight: batches on their way at a time, 1 to 4: with more than 1 the tree grows while the network
    computes. search_threads: of the search itself; they change its speed alone. The search is a function of
    line, limits in nodes and the other settings; time only decides where it stops.
    """

    c_puct: float = 1.745
    c_puct_base: float = 38739.0
    c_puct_factor: float = 3.894
    fpu_reduction: float = 0.33
    policy_temperature: float = 1.359
    two_fold_draws: bool = True
    cache_mb: int = 64
    tree_mb: int = 2048
    minibatch_size: int = 0
    in_flight: int = 2
    search_threads: int = 1
    fill: _core.HistoryFill = _core.HistoryFill.FEN_ONLY

    def for_core(self) -> _core.EngineSettings:
        """The same for the core."""
        settings = _core.EngineSettings()
        settings.c_puct, settings.c_puct_base = self.c_puct, self.c_puct_base
        settings.c_puct_factor = self.c_puct_factor
        settings.fpu_reduction = self.fpu_reduction
        settings.policy_temperature = self.policy_temperature
        settings.two_fold_draws = self.two_fold_draws
        settings.fill = self.fill
        settings.threads = self.search_threads
        settings.cache_bytes = self.cache_mb * MEGABYTE
        settings.tree_bytes = self.tree_mb * MEGABYTE
        return settings


@dataclass(frozen=True)
class SearchLimits:
    """Where a search ends; without limits at stop(), a proof or the end of its memory.

    nodes: visits of the root, those kept from before and its own evaluation included.
    seconds: since start(). depth: mean length of the walks, in plies. moves: the only moves of the root that
    are looked at (none: all).
    """

    nodes: int | None = None
    seconds: float | None = None
    depth: int | None = None
    moves: tuple[int, ...] = ()

    @property
    def most_nodes(self) -> int:
        """As a number, 1 at least: a search looks at its root."""
        return MOST_NODES if self.nodes is None else max(1, self.nodes)


@dataclass
class _Run:
    """A search under way, or one that is over."""

    limits: SearchLimits
    began: float
    stopped: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    ended: float = 0.0
    error: Exception | None = None

    def end(self) -> None:
        if not self.over.is_set():
            self.ended = time.monotonic()
            self.stopped = True
            self.over.set()

    @property
    def seconds(self) -> float:
        return (self.ended if self.over.is_set() else time.monotonic()) - self.began


class TreeSearch:
    """The search of one game at a time, on a separate thread.

    Functions may be called by any thread; one of them at a time sets lines and starts searches. Nothing here
    waits for an evaluation but wait() and search(), and these not once stop() was called.
    """

    def __init__(
        self,
        game: str,
        evaluator: Evaluator,
        settings: TreeSettings | None = None,
        tables: SearchTables | None = None,
    ) -> None:
        """tables: decide positions of the tree (chess)."""
        self.game = game
        self._tables = tables
        self.settings = settings or TreeSettings()
        self._evaluator = evaluator
        self._core: GameSearch = get_game(game).core.game_search(self.settings.for_core())
        self._line = make_line(game)
        self._gate = threading.Lock()  # held while leaves are gathered, and while lines and limits change
        self._runs: SimpleQueue[_Run | None] = SimpleQueue()
        self._run = _Run(SearchLimits(), time.monotonic())
        self._run.end()
        self._thread = threading.Thread(target=self._drive, name="tree search", daemon=True)
        self._thread.start()
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # once, and not before there is a search
        _OPEN.add(self)

    def set_line(self, line: Line | Board | State) -> int:
        """The position to search is the end of this line, of which a copy is taken. Ends a search under way.

        line: of the core, a Board, or whatever a Board begins with (a board of python-chess, a state).
        Returns how many visits of it are known from before.
        """
        if isinstance(line, type(self._line)):
            asked: Line = line
        else:
            asked = (line if isinstance(line, Board) else Board(self.game, line)).line  # type: ignore[arg-type]
        self.stop()
        with self._gate:
            self._line = asked.copy()
            return self._core.set_line(asked)

    def push(self, move: str | int) -> int:
        """Go to the position after a move, a text or the number of an action, and keep what is known of it.

        Returns how many visits of it are known. Raises GameInputError for a move that is not legal.
        """
        line = self._line.copy()
        line.push(legal_move(line, move))
        return self.set_line(line)

    def search(self, limits: SearchLimits, *, num_lines: int = 1) -> Snapshot:
        """Search until a limit or stop(); what was found, with a line of play for `num_lines` moves."""
        self.start(limits)
        while not self.wait(1.0):  # so that Ctrl-C is heard
            pass
        return self.snapshot(num_lines)

    def start(self, limits: SearchLimits) -> None:
        """Begin to search, and return; a search under way is ended first."""
        self.stop()
        with self._gate:
            self._core.begin(tuple(set(limits.moves)))
            self._run = _Run(limits, time.monotonic())
        self._runs.put(self._run)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the search is over (True), or so many seconds. Raises what the evaluator raised."""
        run = self._run
        seconds = run.limits.seconds
        left = None if seconds is None else max(0.0, seconds - run.seconds)
        waits = [each for each in (left, timeout_s) if each is not None]
        run.over.wait(min(waits) if waits else None)
        if seconds is not None and run.seconds >= seconds:
            run.end()
        if run.error is not None:
            raise run.error
        return run.over.is_set()

    def stop(self) -> None:
        """End the search; what is on its way to the network is not waited for."""
        self._run.end()

    def snapshot(self, num_lines: int = 1) -> Snapshot:
        """The search as it stands, or how it ended; lines of play for `num_lines` moves."""
        return snapshot_of(self._core.view(num_lines), self._line, self._run.seconds)

    def forget(self) -> None:
        """Forget the tree and the evaluations: a new game."""
        self.reset(self._evaluator, self.settings, self._tables)

    def network_values(self, moves: Sequence[int]) -> dict[int | None, float]:
        """W - L of the network alone, as far as the cache has it: here (None), and after each of the moves.

        For the side to move here.
        """
        values: dict[int | None, float] = {None: self._core.cached_value(self._line)}
        for move in moves:
            after = self._line.copy()
            after.push(move)
            values[move] = -self._core.cached_value(after)
        return {move: value for move, value in values.items() if not math.isnan(value)}

    def reset(self, evaluator: Evaluator, settings: TreeSettings, tables: SearchTables | None = None) -> None:
        """Another network, settings or tables; nothing known before is kept. Ends a search under way."""
        self.stop()
        with self._gate:
            self._evaluator, self.settings, self._tables = evaluator, settings, tables
            self._core.reset(settings.for_core())

    def close(self) -> None:
        """End the threads; a batch on its way is not waited for."""
        self.stop()
        self._runs.put(None)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the threads after close(): for what is on its way to the network."""
        self._thread.join(timeout_s)

    def _drive(self) -> None:
        while (run := self._runs.get()) is not None:
            batches: deque[Batch] = deque()
            try:
                self._grow(run, batches)
            except Exception as error:  # an evaluator's, of any kind: wait() raises it
                run.error = error
            run.end()
            self._drain(run, batches)

    def _grow(self, run: _Run, batches: deque[Batch]) -> None:
        free = list(range(NUM_SLOTS))
        while True:
            with self._gate:
                if run.stopped or is_reached(self._core, run.limits):
                    return
                before = self._core.progress()
                most = most_leaves(before.nodes, self.settings, self._evaluator)
                leaves = self._core.gather(free[0], most, run.limits.most_nodes)
                evaluator, tables, in_flight = self._evaluator, self._tables, self.settings.in_flight
            if len(leaves[0]):
                batches.append(self._submit(free.pop(0), leaves, evaluator, tables))
                if len(batches) < min(in_flight, NUM_SLOTS):
                    continue
            if batches:
                batch = batches.popleft()
                self._take(*batch)
                free.append(batch[0])
            elif self._core.progress().playouts == before.playouts:
                return  # nothing is left to do, or memory is full

    def _submit(self, slot: int, leaves: Leaves, evaluator: Evaluator, tables: SearchTables | None) -> Batch:
        """Without the gate: some evaluators compute where they are asked."""
        try:
            pending = evaluator.submit(*leaves)
        except Exception:
            self._core.drop(slot)
            raise
        return slot, pending, tables.decide(leaves[0]) if tables is not None else {}

    def _take(self, slot: int, pending: Pending, known: Results) -> None:
        try:
            evaluation = pending.result()
        except Exception:
            self._core.drop(slot)
            raise
        self._core.apply(slot, evaluation.legal_logits, *decided(evaluation, known))

    def _drain(self, run: _Run, batches: deque[Batch]) -> None:
        """Take what is still on its way: the evaluator is free for others, and the tree has its use of it."""
        while batches:
            try:
                self._take(*batches.popleft())
            except Exception as error:
                run.error = run.error or error


def most_leaves(visits: int, settings: TreeSettings, evaluator: Evaluator) -> int:
    """Of the next batch of a tree whose root has so many visits."""
    asked = settings.minibatch_size or evaluator.batch_size
    return max(1, min(asked, evaluator.batch_size, 1 + visits // VISITS_PER_LEAF))


def is_reached(core: GameSearch, limits: SearchLimits) -> bool:
    """Whether a limit other than that of time is reached, or nothing is left to find out."""
    progress = core.progress()
    if progress.is_done or progress.is_full or progress.nodes >= limits.most_nodes:
        return True
    return limits.depth is not None and progress.nodes > 1 and progress.mean_depth >= limits.depth


_OPEN: weakref.WeakSet[TreeSearch] = weakref.WeakSet()


def _close_all() -> None:
    for search in list(_OPEN):
        search.close()
        search.join(LAST_BATCH_S)
