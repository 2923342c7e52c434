"""One `go` from its limits to its answer: the time budget from the clocks, infos, ponder and stop."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import alphazero._core as _core
from alphazero.base.text import reason
from alphazero.games.core_types import Line
from alphazero.games.registry import CHESS
from alphazero.play.uci.options import Options
from alphazero.play.uci.protocol import (
    NULL_MOVE,
    Go,
    best_move_line,
    centipawns,
    info_line,
    info_string,
    move_texts,
    read_move,
)
from alphazero.search.move_stats import move_stats
from alphazero.search.snapshot import MoveReport, Snapshot, wdl_of
from alphazero.search.tables import SearchTables
from alphazero.search.tree_search import SearchLimits, TreeSearch

USUAL_MOVES_LEFT = 26  # of a game without movestogo; as early stops save some of each budget
LARGEST_SHARE = 0.25  # of the clock for one move, unless the clock is only for fewer than four
EXTENSION = 2.0  # of the budget, where the most visited move is not the one of the best value
SHORTEST_S = 0.001
# lc0's smart pruning divides the estimate of the playouts left by this.
PRUNING_FACTOR = 1.33
PRUNING_AFTER_PLAYOUTS = 32  # before, the speed is not known
RIVAL_SHARE = 0.1  # of the visits of the most visited move that a rival must have
INFO_EVERY_S = 0.9
CLOCK_EVERY_S = 0.01
# That a search whose time is over, or that is stopped, waits for its first evaluation: without it any move is
# as good as another.
FIRST_EVALUATION_S = 10.0


@dataclass(frozen=True)
class Budget:
    """Seconds for a move: planned, and at most."""

    planned_s: float = math.inf
    most_s: float = math.inf
    is_clock: bool = False  # time saved on this move can be used later


def budget_of(go: Go, white_moves: bool, overhead_ms: int) -> Budget:
    """The budget of `go`'s limits for the side to move.

    overhead_ms of every move is reserved. A side without a clock uses the other side's.
    """
    if go.infinite:
        return Budget()
    if go.movetime is not None:
        seconds = max(SHORTEST_S, (go.movetime - overhead_ms) / 1000)
        return Budget(seconds, seconds)
    own, others = (go.wtime, go.btime) if white_moves else (go.btime, go.wtime)
    clock_ms = own if own is not None else others
    if clock_ms is None:
        return Budget()
    increment_ms = (go.winc if white_moves else go.binc) or 0
    moves = go.movestogo or USUAL_MOVES_LEFT
    left_ms = max(0, clock_ms - overhead_ms)
    planned_ms = (left_ms + (moves - 1) * max(0, increment_ms - overhead_ms)) / moves
    most_ms = min(left_ms * max(LARGEST_SHARE, 1 / moves), planned_ms * EXTENSION)
    planned_ms = min(planned_ms, most_ms)
    return Budget(max(SHORTEST_S, planned_ms / 1000), max(SHORTEST_S, most_ms / 1000), is_clock=True)


def is_time_over(budget: Budget, seen: Snapshot, seconds: float, *, prunes: bool) -> bool:
    """Whether to move now, `seconds` after the clock was started.

    With `prunes`: also where no other move can be visited more often in time, or there is only one.
    """
    if seconds >= budget.most_s:
        return True
    if not budget.is_clock:
        return False
    if seconds >= budget.planned_s:
        return not _has_rival(seen)
    return prunes and _is_decided(seen, budget.planned_s - seconds)


def _has_rival(seen: Snapshot) -> bool:
    """Whether a move of many visits has a better value than the most visited one."""
    if seen.best is None:
        return True
    best = seen.best
    return any(move.q > best.q and move.visits >= RIVAL_SHARE * best.visits for move in seen.moves[1:])


def _is_decided(seen: Snapshot, left_s: float) -> bool:
    if seen.best is None:
        return False
    rivals = [move for move in seen.moves[1:] if move.proven != -1]
    if not rivals:
        return True
    if seen.playouts < PRUNING_AFTER_PLAYOUTS or seen.seconds <= 0:
        return False
    playouts_left = left_s * seen.playouts / seen.seconds / PRUNING_FACTOR
    return seen.best.visits - max(move.visits for move in rivals) > playouts_left


def temperature_at(number: int, start: float, decay_moves: int = 0, cutoff_move: int = 0) -> float:
    """At the game's move `number`, 1 for the first, as in lc0 (src/search/classic/search.cc).

    start: Temperature, 0 plays the best move. decay_moves: TempDecayMoves, over which it falls to 0, 0: it
    stays. cutoff_move: TempCutoffMove, from which on the best move is played, 0: none.
    """
    if cutoff_move and number >= cutoff_move:
        return 0.0
    return start * max(0, decay_moves - (number - 1)) / decay_moves if decay_moves else start


def chosen_move(
    snapshot: Snapshot, temperature: float, value_cutoff: float, draw: Callable[[], float] = random.random
) -> MoveReport | None:
    """The move to play: by visits ** (1 / temperature), by priors where there are no visits.

    value_cutoff: percentage points of the chance to win that a move may lack to the most visited one. A
    proven win is always played, and a move that is proven lost only if all are. draw: gives [0, 1).
    """
    if snapshot.best is None or temperature <= 0 or snapshot.best.proven in (1, -1):
        return snapshot.best
    moves = [move for move in snapshot.moves if move.proven != -1]
    most = max(moves, key=lambda move: move.visits)
    # lc0: "win probability" is (Q + 1) / 2, so that 100 points are a difference of 2 in Q.
    moves = [move for move in moves if move.q >= most.q - value_cutoff / 50]
    sizes = [move.visits / most.visits if most.visits else move.prior for move in moves]
    largest = max(sizes)
    weights = [(size / largest) ** (1 / temperature) if size else 0.0 for size in sizes]
    left = draw() * sum(weights)
    for move, weight in zip(moves, weights, strict=True):
        left -= weight
        if left < 0:
            return move
    return snapshot.best


class EngineSearch:
    """One `go`, answered with `bestmove` by run().

    tree: None where there is none. send: takes lines of the protocol. began: when the command was read, by
    time.monotonic(). tables: asked at the root; the tree asks the same ones. problem: why there is nothing to
    search, and the answer is the null move.
    """

    def __init__(
        self,
        line: Line,
        go: Go,
        options: Options,
        tree: TreeSearch | None,
        send: Callable[[list[str]], None],
        began: float,
        *,
        tables: SearchTables | None,
        problem: str = "",
    ) -> None:
        if limit := options["NodeLimit"]:
            go = Go(nodes=limit, infinite=go.infinite, ponder=go.ponder, searchmoves=go.searchmoves)
        self._line, self._go, self._options = line, go, options
        self._tree, self._tables, self._problem = tree, tables, problem
        self._result: int | None = None  # of the position, where the tables know it
        self._send = send
        self._is_stopped = False
        self._budget = budget_of(go, line.first_player_to_move, options["Move Overhead"])
        self._clock_began = began
        self._pondering = go.ponder
        # Set when `bestmove` may be sent: at once, or after `stop` or `ponderhit`.
        self._may_answer = threading.Event()
        if not (go.infinite or go.ponder):
            self._may_answer.set()

    @property
    def ends_by_itself(self) -> bool:
        """Whether it needs no further command to answer; one for a mate may have no end."""
        is_bounded = (
            self._go.nodes is not None or self._go.depth is not None or self._budget.most_s < math.inf
        )
        return self._is_stopped or (is_bounded and self._may_answer.is_set())

    def stop(self) -> None:
        """Answer as soon as there is an evaluation."""
        self._is_stopped = True
        self._may_answer.set()
        if self._tree is not None:
            self._tree.stop()

    def ponder_hit(self) -> None:
        """The opponent played the expected move: start the clock."""
        if self._pondering:
            self._clock_began = time.monotonic()
            self._pondering = False
            if not self._go.infinite:
                self._may_answer.set()

    def run(self) -> None:
        """Search and answer."""
        try:
            texts = self._find_moves()
        except Exception as error:  # of any kind: the GUI waits for a move
            if self._tree is not None:
                self._tree.stop()
            self._send([info_string(f"the search failed: {reason(error)}")])
            texts = self._texts(self._line.legal()[:1]) or (NULL_MOVE,)
        self._may_answer.wait()
        self._send([best_move_line(*texts)])

    def _find_moves(self) -> tuple[str, ...]:
        """The move to play and the expected answer, after a search where the rules leave a move."""
        if self._problem:
            self._send([info_string(self._problem)])
            return (NULL_MOVE,)
        only = self._moves_to_search()
        legal = self._line.legal()
        if not legal:
            is_mate = self._line.outcome().termination == _core.Termination.WIN
            self._send([f"info depth 0 score {'mate 0' if is_mate else 'cp 0'}"])
            return (NULL_MOVE,)
        if self._tables is not None:
            best = self._tables.begin(self._line, only, fast=self._options["SyzygyFastPlay"])
            if best is not None:  # the tables know the result, and which moves keep it
                self._result, only = best.result, best.moves
        seen = self._search(self._tree, only) if self._tree is not None else None
        cutoff = self._options["TempValueCutoff"]
        if seen is not None and (move := chosen_move(seen, self._temperature(), cutoff)) is not None:
            return self._texts(move.pv[:2] or (move.move,))
        texts = self._texts((only or legal)[:1])
        if seen is None:
            self._send([f"info depth 1 score cp {centipawns(self._result or 0)} pv {texts[0]}"])
        return texts

    def _search(self, tree: TreeSearch, only: tuple[int, ...]) -> Snapshot:
        """Search until a limit, a proof or `stop`; returns the last snapshot."""
        tree.set_line(self._line)
        tree.start(SearchLimits(nodes=self._go.nodes, depth=self._go.depth, moves=only))
        if self._is_stopped:  # before the tree was started
            tree.stop()
        budget, multipv = self._budget, self._options["MultiPV"]
        sent = time.monotonic()
        try:
            while not tree.wait(CLOCK_EVERY_S if budget.planned_s < math.inf else INFO_EVERY_S):
                now = time.monotonic()
                prunes, seconds = self._options["SmartPruning"], now - self._clock_began
                if not self._pondering and is_time_over(budget, tree.snapshot(0), seconds, prunes=prunes):
                    break
                if now - sent >= INFO_EVERY_S:
                    sent = now
                    self._send(self._infos(tree.snapshot(multipv)))
            self._wait_for_an_evaluation(tree, only)
        except Exception as error:  # of the evaluator: out of memory, a lost device
            self._send([info_string(f"the network failed: {reason(error)}")])
        tree.stop()
        # Any move may be drawn, and its line of play names the expected answer.
        seen = tree.snapshot(len(self._line.legal()) if self._temperature() > 0 else multipv)
        if seen.is_full:
            limit = self._options["MemoryLimit"]
            self._send([info_string(f"tree full (MemoryLimit {limit} MB): search ended")])
        self._send(self._infos(seen))
        if self._options["VerboseMoveStats"]:
            moves = [move.move for move in seen.moves]
            texts = {move: self._texts((move,))[0] for move in moves}
            rows = move_stats(seen, self._line, tree.settings, texts, tree.network_values(moves))
            self._send([info_string(row) for row in rows])
        return seen

    def _temperature(self) -> float:
        """Of this move, by lc0's count of moves, which begins with that of a FEN."""
        options = self._options
        decay, cutoff = options["TempDecayMoves"], options["TempCutoffMove"]
        number = self._line.num_plies // 2 + 1
        if self._line.NAME == CHESS:
            number = _core.ChessPosition(str(self._line)).fullmove_number
        return temperature_at(number, options["Temperature"], decay, cutoff)

    def _wait_for_an_evaluation(self, tree: TreeSearch, only: tuple[int, ...]) -> None:
        """Of the position, where the search was over before; so long `stop` ends nothing more."""
        end = time.monotonic() + FIRST_EVALUATION_S
        while (seen := tree.snapshot(0)).best is None and not seen.is_full:
            if (left := end - time.monotonic()) <= 0:
                self._send([info_string(f"no evaluation for {FIRST_EVALUATION_S:g} s: the move is a guess")])
                return
            tree.start(SearchLimits(nodes=1, moves=only))
            tree.wait(left)

    def _infos(self, seen: Snapshot) -> list[str]:
        multipv, shows_wdl = self._options["MultiPV"], self._options["UCI_ShowWDL"]
        if self._result is not None:
            seen = with_result(seen, self._result)
        elif seen.proven is not None:  # by one move: of those that nothing looked at the value is not known
            seen = replace(seen, moves=tuple(move for move in seen.moves if move.is_looked_at))
        hits = self._tables.hits if self._tables is not None else 0
        if not seen.moves:
            return [info_line(seen, None, (), shows_wdl=shows_wdl, table_hits=hits)]
        return [
            info_line(
                seen,
                move,
                self._texts(move.pv),
                multipv=number if multipv > 1 else 0,
                shows_wdl=shows_wdl,
                table_hits=hits,
            )
            for number, move in enumerate(seen.moves[:multipv], start=1)
        ]

    def _moves_to_search(self) -> tuple[int, ...]:
        """The legal moves of `searchmoves`, after a remark for each other; () means all moves."""
        moves = []
        for text in self._go.searchmoves:
            try:
                moves.append(read_move(self._line, text))
            except _core.GameError:
                self._send([info_string(f"go searchmoves: {text!r}: illegal move, ignored")])
        return tuple(moves)

    def _texts(self, moves: Sequence[int]) -> tuple[str, ...]:
        """Moves from the end of the line, as the protocol has them."""
        return move_texts(self._line, moves, chess960=self._options["UCI_Chess960"])


def with_result(seen: Snapshot, result: int) -> Snapshot:
    """The search of moves that all keep this result, with its value in place of what they seem worth."""
    value, wdl = float(result), wdl_of(result, float(result == 0))
    moves = tuple(replace(move, q=value, wdl=wdl) for move in seen.moves)
    return replace(seen, q=value, wdl=wdl, moves=moves)
