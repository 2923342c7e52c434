"""Rows of games that a search made, with made-up policies and values; python-chess knows the legal moves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa

from alphazero.data.sampling.window import Window
from alphazero.data.store.growing import GrowingStore
from alphazero.data.store.store import GameStore
from alphazero.data.store.writer import ROW_SCHEMA
from tests.support.data.windows import Game
from tests.support.games.chess_reference import core_move, positions_of

Policy = list[tuple[int, int]]  # moves with their shares of 65535


def row(game: str, moves: Sequence[int], result: int | None, **columns: Any) -> dict[str, Any]:
    """A row of a store without a search."""
    return {
        "game": game,
        "variant": "standard",
        "source": "made up",
        "moves": list(moves),
        "result": result,
        **columns,
    }


def searched(
    plain: dict[str, Any],
    flags: Sequence[int],
    policies: Sequence[Policy],
    root_q: Sequence[float],
    root_d: Sequence[float],
) -> dict[str, Any]:
    """The row with what a search knew: a flag, a policy and a value for each ply."""
    offsets = [0]
    for policy in policies:
        offsets.append(offsets[-1] + len(policy))
    return {
        **plain,
        "flags": list(flags),
        "root_q": list(root_q),
        "root_d": list(root_d),
        "best_q": list(root_q),
        "visits": [100] * len(flags),
        "policy_offsets": offsets,
        "policy_move": [move for policy in policies for move, _ in policy],
        "policy_prob": [share for policy in policies for _, share in policy],
        "target_kind": "visits",
    }


def chess_row(game: Game) -> dict[str, Any]:
    """A game of python-chess without a search."""
    board = game.board.root()
    start = None if board.fen() == chess.STARTING_FEN else board.fen()
    positions = positions_of(game.board)
    moves = [core_move(p, m) for p, m in zip(positions, game.board.move_stack, strict=False)]
    return row("chess", moves, game.result, start_fen=start)


def searched_chess_row(game: Game, rng: random.Random) -> dict[str, Any]:
    """A game of python-chess with policies over some of its legal moves, at some of its plies."""
    policies: list[Policy] = []
    for board in positions_of(game.board)[:-1]:
        legal = list(board.legal_moves)
        chosen = rng.sample(legal, rng.randint(0, len(legal)))
        policies.append([(core_move(board, move), rng.randrange(65536)) for move in chosen])
    plies = range(len(policies))
    root_q = [rng.uniform(-1, 1) for _ in plies]
    root_d = [rng.uniform(0, 1 - abs(q)) for q in root_q]
    return searched(chess_row(game), [rng.randrange(4) for _ in plies], policies, root_q, root_d)


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rows for a writer."""
    return pa.RecordBatch.from_pylist(list(rows), schema=ROW_SCHEMA)


def grown(path: Path, *shards: Sequence[dict[str, Any]]) -> GameStore:
    """A store that grew by these shards."""
    store = GrowingStore(path, shards[0][0]["game"])
    for rows in shards:
        store.append(batch(rows))
    return GameStore.open(path)


def window_of_rows(path: Path, *shards: Sequence[dict[str, Any]]) -> Window:
    """A window over a store of these shards."""
    return Window.of_stores([grown(path, *shards)])
