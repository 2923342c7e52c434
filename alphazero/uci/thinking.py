"""One `go` from its limits to `bestmove`: the clock, the infos, ponder and stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from alphazero import _core
from alphazero.games.core_types import Line
from alphazero.search.snapshot import MoveReport, Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSearch
from alphazero.uci.protocol import NULL_MOVE, Go, best_move_line, info_line, info_string
from alphazero.uci.time_manager import Budget, budget_of, is_time_over

INFO_EVERY_S = 0.9
CLOCK_EVERY_S = 0.01
# A search whose time is over before the first evaluation may wait so long for it.
GRACE_S = 0.05


@dataclass(frozen=True)
class Manner:
    """What of the options concerns a single search."""

    multipv: int = 1
    shows_wdl: bool = False
    chess960: bool = False
    prunes: bool = True
    overhead_ms: int = 30
    tree_mb: int = 1024
    counts: bool = False  # tells what a search cost: `debug on`


class Thinking:
    """One `go`, on a thread of its own.

    tree: asked for once it is needed, and given None where the search was stopped before there was a network.
    send: takes lines of the protocol. began: when the command was read, by time.monotonic().
    """

    def __init__(
        self,
        line: Line,
        go: Go,
        manner: Manner,
        tree: Callable[[Thinking], TreeSearch | None],
        send: Callable[[list[str]], None],
        began: float,
    ) -> None:
        self.stopped = threading.Event()
        self._line, self._go, self._manner = line, go, manner
        self._tree_of, self._send = tree, send
        self._clock_began = began
        self._pondering = go.ponder
        # `bestmove` is held back until the GUI says so.
        self._may_answer = threading.Event()
        if not (go.infinite or go.ponder):
            self._may_answer.set()
        self._tree: TreeSearch | None = None
        self._thread = threading.Thread(target=self._think, name="thinking", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Answer now."""
        self.stopped.set()
        if self._tree is not None:
            self._tree.stop()
        self._may_answer.set()

    def ponder_hit(self) -> None:
        """The opponent has played the move that was pondered: the clock runs from now."""
        if self._pondering:
            self._clock_began = time.monotonic()
            self._pondering = False
            if not self._go.infinite:
                self._may_answer.set()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for `bestmove`."""
        self._thread.join(timeout_s)

    @property
    def is_over(self) -> bool:
        """Whether `bestmove` was sent."""
        return not self._thread.is_alive()

    def _think(self) -> None:
        remarks: list[str] = []
        only = self._legal_of(self._go.searchmoves, remarks)
        if remarks:
            self._send(remarks)
        seen: Snapshot | None = None
        if self._line.legal():
            tree = self._tree_of(self)
            if tree is not None:
                seen = self._search(tree, only)
        else:
            self._send([f"info depth 0 score {'mate 0' if _is_mate(self._line) else 'cp 0'}"])
        self._may_answer.wait()
        self._answer(seen, only)

    def _search(self, tree: TreeSearch, only: tuple[int, ...]) -> Snapshot | None:
        """Until a limit, a proof or stop; the search as it stands then. None: the network failed."""
        self._tree = tree
        tree.set_line(self._line)
        tree.start(SearchLimits(nodes=self._go.nodes, depth=self._go.depth, moves=only))
        if self.stopped.is_set():  # it came before `start`
            tree.stop()
        budget = budget_of(self._go, self._line.first_player_to_move, self._manner.overhead_ms)
        told = time.monotonic()
        try:
            while not tree.wait(CLOCK_EVERY_S if budget.planned_s is not None else INFO_EVERY_S):
                now = time.monotonic()
                if self._is_time_over(tree, budget, now):
                    break
                if now - told >= INFO_EVERY_S:
                    told = now
                    self._send(self._infos(tree.snapshot(self._manner.multipv)))
            self._wait_for_the_first(tree)
        except Exception as error:  # what the evaluator raised: out of memory, a lost device
            self._send([info_string(f"the network failed: {error}")])
        tree.stop()
        seen = tree.snapshot(self._manner.multipv)
        if seen.is_full:
            limit = self._manner.tree_mb
            self._send([info_string(f"the tree is full: MemoryLimit {limit} MB; the search ends here")])
        if self._manner.counts:
            size = f"{seen.tree_nodes:,} nodes, {seen.tree_bytes // 2**20} MB"
            evaluated = f"{seen.evaluations:,} evaluations, {seen.cache_hits:,} from the cache"
            self._send([info_string(f"{evaluated}; the tree has {size}")])
        self._send(self._infos(seen))
        return seen

    def _is_time_over(self, tree: TreeSearch, budget: Budget, now: float) -> bool:
        if self._pondering or budget.planned_s is None:
            return False
        return is_time_over(budget, tree.snapshot(0), now - self._clock_began, prunes=self._manner.prunes)

    def _wait_for_the_first(self, tree: TreeSearch) -> None:
        """A position without any evaluation waits for it for a moment: a move at random is worth less."""
        end = time.monotonic() + GRACE_S
        while time.monotonic() < end and not tree.wait(CLOCK_EVERY_S / 10):
            if tree.snapshot(0).best is not None:
                return

    def _infos(self, seen: Snapshot) -> list[str]:
        manner = self._manner
        if not seen.moves:
            return [info_line(seen, None, (), shows_wdl=manner.shows_wdl)]
        return [
            info_line(
                seen,
                move,
                move_texts(self._line, move.pv, manner.chess960),
                multipv=number if manner.multipv > 1 else 0,
                shows_wdl=manner.shows_wdl,
            )
            for number, move in enumerate(seen.moves[: manner.multipv], start=1)
        ]

    def _answer(self, seen: Snapshot | None, only: tuple[int, ...]) -> None:
        best: MoveReport | None = seen.best if seen else None
        legal = only or tuple(self._line.legal())
        if best is not None:
            texts = move_texts(self._line, best.pv[:2], self._manner.chess960)
        elif legal:  # nothing was found out: any move is better than none
            texts = move_texts(self._line, legal[:1], self._manner.chess960)
            if seen is None:
                self._send([f"info depth 1 score cp 0 pv {texts[0]}"])
        else:
            texts = (NULL_MOVE,)
        self._send([best_move_line(*texts)])

    def _legal_of(self, texts: tuple[str, ...], remarks: list[str]) -> tuple[int, ...]:
        """The moves of `searchmoves`; what is none here is told of. None left: all moves."""
        moves = []
        for text in texts:
            try:
                moves.append(self._line.text_to_move(text))
            except _core.GameError:
                remarks.append(info_string(f"go searchmoves: {text!r}: no legal move here; passed over"))
        return tuple(moves)


def move_texts(line: Line, moves: tuple[int, ...], chess960: bool) -> tuple[str, ...]:
    """Moves from the end of the line as UCI."""
    position = _core.ChessPosition(str(line))
    texts = []
    for move in moves:
        texts.append(position.uci(move, chess960=chess960))
        position.push(move)
    return tuple(texts)


def _is_mate(line: Line) -> bool:
    return line.outcome().termination == _core.Termination.WIN
