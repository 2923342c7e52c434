"""Games to step through with the evaluations of a search or the network, and the worst positions.

A board is a letter a square; a move is the squares from which and to which it leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import chess
import numpy as np

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.store import GameStore
from alphazero.games.core_types import Line
from alphazero.games.drawing import rows_of
from alphazero.games.notation import CHESS, RESULTS
from alphazero.games.outside.names import is_outside
from alphazero.games.registry import make_line
from alphazero.run.validation_record import SeenGame, SeenGames, SeenPly, ValidationRecord
from alphazero.show.report.panel import rounded


@dataclass(frozen=True)
class Arrow:
    """A move and its share of a policy. origin: -1 where a stone is put; target: -1 of a pass.

    Squares are numbered by rows from the top left.
    """

    text: str
    origin: int
    target: int
    share: float

    def to_json(self) -> list[Any]:
        """text, origin, target, share."""
        return [self.text, self.origin, self.target, rounded(self.share)]


class BoardReader:
    """Squares and moves of one position after another of a game."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._cells = cells_of(line)
        self._width = len(rows_of(line)[0])
        self._chess = chess.Board(str(line)) if line.NAME == CHESS else None

    def arrow(self, text: str, share: float = 1.0) -> Arrow:
        """A legal move in the game's own text. Raises GameInputError for any other."""
        move = self._legal(text)
        if self._chess is not None:
            san = self._chess.san(self._chess.parse_uci(text))
            return Arrow(san, self._square(text[:2]), self._square(text[2:4]), share)
        after = self._line.copy()
        after.push(move)
        return Arrow(self._line.move_to_text(move), -1, self._new_stone(cells_of(after)), share)

    def arrows(self, moves: Iterable[tuple[str, float]]) -> list[Arrow]:
        """The legal ones of these moves; others, of a damaged record, are skipped."""
        found = []
        for text, share in moves:
            try:
                found.append(self.arrow(text, share))
            except GameInputError:
                continue
        return found

    def _legal(self, text: str) -> int:
        moves = {self._line.move_to_text(move): move for move in self._line.legal()}
        if text not in moves:
            raise GameInputError(f"{text!r}: expected a legal move")
        return moves[text]

    def _new_stone(self, after: str) -> int:
        for square, (was, is_now) in enumerate(zip(self._cells, after, strict=True)):
            if was == "." and is_now != ".":
                return square
        return -1

    def _square(self, name: str) -> int:
        height = len(self._cells) // self._width
        return (height - int(name[1])) * self._width + ord(name[0]) - ord("a")


def cells_of(line: Line) -> str:
    """The board from the top left, a letter a square and '.' where it is empty."""
    return "".join(rows_of(line))


NEWEST_GAMES = 8
NUM_ARROWS = 5
MOST_PLIES = 300
FIXED_POINT = 65535.0


def stored_games(store: GameStore) -> list[dict[str, Any]]:
    """The newest games of a store, the last one first, without those that cannot be replayed."""
    if is_outside(store.manifest.game):
        return []
    first = max(0, store.num_games - NEWEST_GAMES)
    found = []
    for number, game in enumerate(games_of(store, first), start=first + 1):
        try:
            seen = _of_store(store.manifest.game_now, game)
            found.append(_game_json(store.manifest.game_now, seen, f"Self-play game {number:,}"))
        except (AlphaZeroError, ValueError, LookupError):
            continue
    return found[::-1]


def held_out_games(seen: SeenGames) -> list[dict[str, Any]]:
    """Held-out games as the network of a validation sees them."""
    found: list[dict[str, Any]] = []
    if is_outside(seen.game):
        return found
    for game in seen.games:
        players = " - ".join(filter(None, (game.labels.get("white"), game.labels.get("black"))))
        title = players or "Held-out game"
        try:
            found.append(_game_json(seen.game, game, title))
        except (AlphaZeroError, ValueError, LookupError):
            continue
    return found


def wrong_positions(game: str, record: ValidationRecord) -> list[dict[str, Any]]:
    """The worst positions of a validation as boards; one that several games reached is shown once."""
    found: list[dict[str, Any]] = []
    if is_outside(game):
        return found
    for wrong in record.wrong:
        if any((one["by"], one["position"]) == (wrong.by, wrong.position) for one in found):
            continue
        try:
            line = make_line(game, wrong.position)
            reader = BoardReader(line)
            target = reader.arrow(wrong.move, wrong.share)
        except (AlphaZeroError, ValueError, LookupError):
            continue
        found.append(
            {
                "by": wrong.by,
                "truth": record.truth,
                "cells": cells_of(line),
                "first_to_move": line.first_player_to_move,
                "position": wrong.position,
                "target": target.to_json(),
                "policy": [arrow.to_json() for arrow in reader.arrows(wrong.policy)],
                "value": rounded(wrong.value),
                "result": rounded(wrong.result),
            }
        )
    return found


def _of_store(name: str, game: GameRow) -> SeenGame:
    """A game with the search's evaluation of each ply."""
    start = game.values.get("start_fen")
    line = make_line(name, start)
    moves: list[str] = []
    plies: list[SeenPly | None] = []
    for ply, move in enumerate(game.lists["moves"].tolist()[:MOST_PLIES]):
        plies.append(_searched(game, line, ply))
        moves.append(line.move_to_text(move))
        line.push(move)
    end = str(game.values.get("termination", ""))
    return SeenGame(
        start, tuple(moves), RESULTS[game.values.get("result")], tuple(plies), {"end": end} if end else {}
    )


def _searched(game: GameRow, line: Line, ply: int) -> SeenPly | None:
    """The search's evaluation; None for a random opening's move, or a game without searches."""
    if not game.is_searched or not game.lists["visits"][ply]:
        return None
    begin, end = game.lists["policy_offsets"][ply : ply + 2].tolist()
    shares = game.lists["policy_prob"][begin:end] / FIXED_POINT
    order = np.argsort(-shares, kind="stable")[:NUM_ARROWS]
    moves = game.lists["policy_move"][begin:end]
    policy = tuple((line.move_to_text(int(moves[place])), float(shares[place])) for place in order)
    return SeenPly(float(game.lists["root_q"][ply]), float(game.lists["root_d"][ply]), policy)


def _game_json(name: str, game: SeenGame, title: str) -> dict[str, Any]:
    """Each position with the move that led there and its evaluation; values are the first player's."""
    line = make_line(name, game.start)
    frames: list[dict[str, Any]] = [_frame(line, None)]
    for ply, move in enumerate(game.moves[:MOST_PLIES]):
        reader = BoardReader(line)
        played = reader.arrow(move)
        _look(frames[-1], reader, line, game.plies[ply] if ply < len(game.plies) else None)
        line.push_text(move)
        frames.append(_frame(line, played.to_json()[:3]))
    return {
        "title": title,
        "result": game.result,
        "labels": dict(game.labels),
        "starts_elsewhere": game.start is not None,
        "frames": frames,
    }


def _frame(line: Line, move: Sequence[Any] | None) -> dict[str, Any]:
    return {"cells": cells_of(line), "move": move, "first_to_move": line.first_player_to_move}


def _look(frame: dict[str, Any], reader: BoardReader, line: Line, seen: SeenPly | None) -> None:
    if seen is None:
        return
    sign = 1.0 if line.first_player_to_move else -1.0
    frame["value"] = rounded(sign * seen.value)
    frame["draw"] = rounded(seen.draw)
    frame["policy"] = [arrow.to_json() for arrow in reader.arrows(seen.policy)]
