"""Games to step through with the evaluations of a search or the network, and the worst positions.

A board is a letter a square; a move is the squares from which and to which it leads. Positions of games whose
rules are not the core's are shown as these draw them, and their moves are texts alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import chess
import numpy as np

from alphazero.base.errors import AlphaZeroError, GameInputError
from alphazero.base.text import shortened
from alphazero.data.store.games import GameRow, games_of
from alphazero.data.store.store import GameStore
from alphazero.games.core_types import Line
from alphazero.games.drawing import draw, rows_of
from alphazero.games.notation import RESULTS
from alphazero.games.outside.drawn_board import cells_of_drawing, squares_of_move
from alphazero.games.outside.names import is_outside
from alphazero.games.registry import CHESS, known_game, make_line
from alphazero.run.validation_record import SeenGame, SeenGames, SeenPly, ValidationRecord
from alphazero.show.report.panel import rounded


class MoveReader:
    """Reads moves at the end of a line: as numbers, and as arrows with a share of a policy.

    An arrow: its text, the squares from which and to which it leads, numbered by rows from the top left, and
    its share. Origin -1: a stone is put; target -1: a pass, or a game whose squares are not known.
    """

    def __init__(self, line: Line, cells: str | None = None) -> None:
        """cells: those of the drawing, where moves of rules outside the core lead from square to square."""
        self._line = line
        self._cells = cells if is_outside(line.NAME) or line.NAME == CHESS else cells_of(line)
        self._moves = {text: move for move, text in names_of(line).items()}
        self._chess = chess.Board(str(line)) if line.NAME == CHESS else None

    def move(self, text: str) -> int:
        """The legal move that this names. Raises GameInputError."""
        if text not in self._moves:
            raise GameInputError(f"{text!r}: expected a legal move")
        return self._moves[text]

    def arrow(self, text: str, share: float = 1.0) -> list[Any]:
        """A legal move in the game's own text. Raises GameInputError for any other."""
        move, origin, target = self.move(text), -1, -1
        if self._chess is not None:
            parsed = self._chess.parse_uci(text)
            origin, target = map(chess.square_mirror, (parsed.from_square, parsed.to_square))
            text = self._chess.san(parsed)
        elif self._cells is not None:
            after = self._line.copy()
            after.push(move)
            cells = cells_of_drawing(after) if is_outside(after.NAME) else cells_of(after)
            if cells is not None:
                origin, target = squares_of_move(self._cells, cells, self._line.BOARD_WIDTH)
        return [shortened(text), origin, target, rounded(share)]

    def arrows(self, moves: Iterable[tuple[str, float]]) -> list[list[Any]]:
        """The legal ones of these moves; others, of a damaged record, are skipped."""
        return [self.arrow(text, share) for text, share in moves if text in self._moves]


def cells_of(line: Line) -> str:
    """The board from the top left, a letter a square and '.' where it is empty."""
    return "".join(rows_of(line))


def names_of(line: Line) -> dict[int, str]:
    """The legal moves with their texts; of those that have the same text, the numbers of the actions."""
    texts = {move: line.move_to_text(move) for move in line.legal()}
    counts = Counter(texts.values())
    return {move: text if counts[text] == 1 else str(move) for move, text in texts.items()}


MOST_ROWS, MOST_COLUMNS = 60, 120  # of a drawing
MOST_SIGNS = 100_000  # that are looked at


def drawing_of(line: Line) -> str:
    """The position as its rules draw it, cut where it is large; what cannot be printed is a question mark."""
    rows = draw(line)[:MOST_SIGNS].expandtabs().splitlines()
    cut = [row if len(row) <= MOST_COLUMNS else f"{row[: MOST_COLUMNS - 3]}..." for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        cut.append("... (the rest is not shown)")
    return "\n".join("".join(sign if sign.isprintable() else "?" for sign in row) for row in cut)


NEWEST_GAMES = 8
NUM_ARROWS = 5
MOST_PLIES = 300
FIXED_POINT = 65535.0
DAMAGED = (AlphaZeroError, ValueError, LookupError)  # of records, and of rules that are no longer theirs


def stored_games(store: GameStore) -> list[dict[str, Any]]:
    """The newest games of a store, the last one first. Raises one of DAMAGED where one cannot be replayed."""
    name, first = store.manifest.game_now, max(0, store.num_games - NEWEST_GAMES)
    return [
        _game_json(name, _of_store(name, game), f"Self-play game {number:,}")
        for number, game in enumerate(games_of(store, first), start=first + 1)
    ][::-1]


def held_out_games(seen: SeenGames) -> list[dict[str, Any]]:
    """Held-out games as the network of a validation sees them."""
    games: list[dict[str, Any]] = []
    for game in seen.games:
        players = " - ".join(filter(None, (game.labels.get("white"), game.labels.get("black"))))
        title = players or "Held-out game"
        try:
            games.append(_game_json(known_game(seen.game), game, title))
        except DAMAGED:
            continue
    return games


def wrong_positions(game: str, record: ValidationRecord) -> list[dict[str, Any]]:
    """The worst positions of a validation as boards; one that several games reached is shown once."""
    boards: list[dict[str, Any]] = []
    for wrong in record.wrong:
        if any((board["by"], board["position"]) == (wrong.by, wrong.position) for board in boards):
            continue
        try:
            line = make_line(known_game(game), wrong.position)
            reader = MoveReader(line)
            target = reader.arrow(wrong.move, wrong.share)
            shown = position_of(line)
        except DAMAGED:
            continue
        boards.append(
            {
                **shown,
                "by": wrong.by,
                "truth": record.truth,
                "position": wrong.position,
                "target": target,
                "policy": reader.arrows(wrong.policy),
                "value": rounded(wrong.value),
                "result": rounded(wrong.result),
            }
        )
    return boards


def _of_store(name: str, game: GameRow) -> SeenGame:
    """A game with the search's evaluation of each ply."""
    start = game.values.get("start_fen")
    line = make_line(name, start)
    moves: list[str] = []
    plies: list[SeenPly | None] = []
    for ply, move in enumerate(game.lists["moves"].tolist()[:MOST_PLIES]):
        text = names_of(line).__getitem__ if is_outside(line.NAME) else line.move_to_text
        plies.append(_searched(game, text, ply))
        moves.append(text(move))
        line.push(move)
    end = str(game.values.get("termination", ""))
    return SeenGame(
        start, tuple(moves), RESULTS[game.values.get("result")], tuple(plies), {"end": end} if end else {}
    )


def _searched(game: GameRow, text: Callable[[int], str], ply: int) -> SeenPly | None:
    """The search's evaluation; None for a random opening's move, or a game without searches."""
    if not game.is_searched or not game.lists["visits"][ply]:
        return None
    begin, end = game.lists["policy_offsets"][ply : ply + 2].tolist()
    shares = game.lists["policy_prob"][begin:end] / FIXED_POINT
    order = np.argsort(-shares, kind="stable")[:NUM_ARROWS]
    moves = game.lists["policy_move"][begin:end]
    policy = tuple((text(int(moves[index])), float(shares[index])) for index in order)
    return SeenPly(float(game.lists["root_q"][ply]), float(game.lists["root_d"][ply]), policy)


def _game_json(name: str, game: SeenGame, title: str) -> dict[str, Any]:
    """Each position with the move that led there and its evaluation; values are the first player's."""
    line = make_line(name, game.start)
    frames: list[dict[str, Any]] = [{**position_of(line), "move": None}]
    for ply, move in enumerate(game.moves[:MOST_PLIES]):
        reader = MoveReader(line)
        played = reader.arrow(move)
        if (seen := game.plies[ply] if ply < len(game.plies) else None) is not None:
            sign = 1.0 if line.first_player_to_move else -1.0
            frames[-1] |= {
                "value": rounded(sign * seen.value),
                "draw": rounded(seen.draw),
                "policy": reader.arrows(seen.policy),
            }
        line.push(reader.move(move))
        frames.append({**position_of(line), "move": played[:3]})
    return {
        "title": title,
        "result": game.result,
        "labels": dict(game.labels),
        "starts_elsewhere": game.start is not None,
        "frames": frames,
    }


def position_of(line: Line) -> dict[str, Any]:
    """As boards.js draws it. drawing: of a game that its rules draw; cells: of any other."""
    board = {"drawing": drawing_of(line)} if is_outside(line.NAME) else {"cells": cells_of(line)}
    return {**board, "first_to_move": line.first_player_to_move}
