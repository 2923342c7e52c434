"""Answers what the page of `alphazero play --browser` asks: positions, searches, PGN; all plain JSON values.

The page keeps the game: each request brings the start and the moves, so that tabs do not share one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import quoted
from alphazero.games.board import Board
from alphazero.games.core_types import Line
from alphazero.games.drawing import can_be_flipped
from alphazero.games.notation import move_texts, read_move
from alphazero.games.outside.drawn_board import cells_of_drawing
from alphazero.games.outside.names import is_outside
from alphazero.play.net import Net
from alphazero.play.search_text import LONGEST_PV
from alphazero.play.session import pgn_of, require_chess
from alphazero.search.snapshot import Snapshot
from alphazero.search.tree_search import SearchLimits, TreeSearch
from alphazero.settings.self_play import MOST_SIMULATIONS
from alphazero.show.report.games import MoveReader, names_of, position_of
from alphazero.show.report.panel import rounded

MOST_MOVES = 4096
MOST_SECONDS = 600.0
MOST_SEARCHES = 4  # under way or waiting, over all tabs
MOST_DRAWN = 1000  # legal moves of a position, each of which is drawn to find its squares
ARROWS = 5
TICK_S = 0.1


class SearchesFullError(AlphaZeroError):
    """More searches are asked for than are answered at a time."""


class GameAnswers:
    """Answers by one or two networks of a game; each of them does one search at a time."""

    def __init__(self, nets: Sequence[Net]) -> None:
        self.nets = nets
        self._trees = [net.tree() for net in nets]
        self._locks = [threading.Lock() for _ in nets]
        self._places = threading.BoundedSemaphore(MOST_SEARCHES)

    def close(self) -> None:
        """End the searches."""
        for tree in self._trees:
            tree.close()

    def answer(self, kind: str, asked: Mapping[str, Any], is_gone: Callable[[], bool]) -> dict[str, Any]:
        """The answer to 'position', 'search' or 'pgn'. is_gone: whether the page has given up waiting.

        Raises GameInputError for what cannot be answered, and SearchesFullError.
        """
        game = Replay.of(self.nets[0].game, asked)
        if kind == "search":
            return self._searched(game.board, asked, is_gone)
        return _written(game.board, asked) if kind == "pgn" else game.position()

    def _searched(
        self, board: Board, asked: Mapping[str, Any], is_gone: Callable[[], bool]
    ) -> dict[str, Any]:
        number = asked.get("network", 0)
        if type(number) is not int or not 0 <= number < len(self.nets):
            raise GameInputError(f"network: {quoted(number)}: expected 0 to {len(self.nets) - 1}")
        limits = _limits(asked)
        if not board.legal_moves:
            raise GameInputError("the game is over: expected a position with a move left")
        if not self._places.acquire(blocking=False):
            raise SearchesFullError(
                f"{MOST_SEARCHES} searches are under way; expected another request when one has ended"
            )
        try:
            while not self._locks[number].acquire(timeout=TICK_S):
                if is_gone():
                    raise SearchesFullError("the page has closed its request")
            try:
                snapshot = _search(self._trees[number], board, limits, is_gone)
            finally:
                self._locks[number].release()
        finally:
            self._places.release()
        return _snapshot_json(board, snapshot)


def _limits(asked: Mapping[str, Any]) -> SearchLimits:
    simulations, seconds = asked.get("simulations"), asked.get("seconds")
    if not isinstance(simulations, bool) and not isinstance(seconds, bool):
        if isinstance(simulations, int) and seconds is None and 1 <= simulations <= MOST_SIMULATIONS:
            return SearchLimits(nodes=simulations)
        if isinstance(seconds, int | float) and simulations is None and 0 < seconds <= MOST_SECONDS:
            return SearchLimits(seconds=float(seconds))
    raise GameInputError(
        f"simulations {quoted(simulations)}, seconds {quoted(seconds)}: expected one of them, "
        f"1 to {MOST_SIMULATIONS:,} simulations or up to {MOST_SECONDS:.0f} seconds"
    )


def _search(tree: TreeSearch, board: Board, limits: SearchLimits, is_gone: Callable[[], bool]) -> Snapshot:
    tree.set_line(board.line)
    tree.start(limits)
    while not tree.wait(TICK_S):
        if is_gone():
            tree.stop()
    snapshot = tree.snapshot(ARROWS)
    return snapshot if snapshot.best else tree.search(SearchLimits(nodes=1), num_lines=ARROWS)


def _snapshot_json(board: Board, snapshot: Snapshot) -> dict[str, Any]:
    """Arrows have shares of the visits; wdl and mate are the first player's."""
    assert snapshot.best is not None
    line = board.line
    names = names_of(line)
    reader = MoveReader(line, _drawn_cells(line))
    is_first = line.first_player_to_move
    first = snapshot.moves[:ARROWS]
    return {
        "move": names[snapshot.best.move],
        "policy": reader.arrows((names[move.move], move.share) for move in first),
        "lines": [" ".join(move_texts(line, move.pv[:LONGEST_PV])) for move in first],
        "wdl": [rounded(share) for share in (snapshot.wdl if is_first else snapshot.wdl[::-1])],
        "mate": snapshot.mate if is_first or snapshot.mate is None else -snapshot.mate,
        "nodes": snapshot.nodes,
        "seconds": rounded(snapshot.seconds),
    }


@dataclass(frozen=True)
class Replay:
    """The game that a request brings. shown: its moves as people write them. turns: whose each was.

    move: the arrow of the last one. pushed: the last move by the one name that no other legal move has.
    """

    board: Board
    shown: list[str]
    turns: list[str]
    move: list[Any] | None
    pushed: str

    @classmethod
    def of(cls, game: str, asked: Mapping[str, Any]) -> Replay:
        """Raises GameInputError for a start or a move that the game does not have."""
        start, moves = asked.get("start"), asked.get("moves", [])
        if not (start is None or isinstance(start, str)):
            raise GameInputError(f"start {quoted(start)}: expected a position as text, or null")
        if not isinstance(moves, list) or len(moves) > MOST_MOVES:
            raise GameInputError(f"moves: expected a list of at most {MOST_MOVES} texts")
        board, move, pushed = Board(game, start), None, ""
        shown: list[str] = []
        turns: list[str] = []
        for number, text in enumerate(moves, start=1):
            if not isinstance(text, str):
                raise GameInputError(f"move {number}: {quoted(text)}: expected a text")
            try:
                shown.append(board.san(text))
                turns.append(board.turn)
                if number == len(moves):
                    line = board.line
                    pushed = names_of(line)[read_move(line, text)]
                    move = MoveReader(line, _drawn_cells(line)).arrow(pushed)[:3]
                board.push(text)
            except GameInputError as error:
                raise GameInputError(f"move {number}: {error}") from None
        return cls(board, shown, turns, move, pushed)

    def position(self) -> dict[str, Any]:
        """What is drawn. legal: of each move its name, as people write it, origin and target square."""
        board = self.board
        line = board.line
        names = [] if board.is_over else names_of(line).values()
        cells = _drawn_cells(line)
        reader = MoveReader(line, cells)
        drawn = (
            {"cells": cells, "size": [line.BOARD_HEIGHT, line.BOARD_WIDTH]} if cells else position_of(line)
        )
        return {
            **drawn,
            "first_to_move": line.first_player_to_move,
            "move": self.move,
            "pushed": self.pushed,
            "shown": self.shown,
            "turns": self.turns,
            "legal": [[name, *reader.arrow(name)[:3]] for name in names],
            "fen": board.fen,
            "turn": board.turn,
            "flips": can_be_flipped(line),
            "result": board.result,
            "why": board.termination.replace("_", " "),
        }


def _drawn_cells(line: Line) -> str | None:
    """The squares of a board that rules outside the core draw; None for others, and where moves are many."""
    is_board = is_outside(line.NAME) and len(line.legal()) <= MOST_DRAWN
    return cells_of_drawing(line) if is_board else None


RESULTS = ("1-0", "0-1")


def _written(board: Board, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The game as PGN."""
    require_chess(board.game, "pgn")
    players, resigned = asked.get("players"), asked.get("resigned", "")
    if not isinstance(players, list) or len(players) != 2:
        raise GameInputError(f"players {quoted(players)}: expected two names")
    if not all(isinstance(name, str) and name.isprintable() for name in players):
        raise GameInputError(f"players {quoted(players)}: expected names of a line each")
    if resigned and resigned not in RESULTS:
        raise GameInputError(f"resigned {quoted(resigned)}: expected {' or '.join(RESULTS)}")
    return {"pgn": pgn_of(board, players, resigned)}
