"""Random games made with python-chess, as rows of stores and as windows, for the tests of the sampler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import chess
import pyarrow as pa

from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView, shard_batch, view_of
from alphazero.data.store.writer import encode_shard
from tests.support.data.stores import Policy, Row, batch, grown, row, searched
from tests.support.games.chess_reference import core_move, positions_of, random_game


@dataclass(frozen=True)
class Game:
    """A game as python-chess knows it; result +1, 0, -1 for White, None if unknown."""

    board: chess.Board
    result: int | None


def random_games(count: int, seed: str, max_plies: int = 60) -> list[Game]:
    """Random games from random starts with random results, some without a result, some without a move."""
    rng = random.Random(seed)
    games = []
    for _ in range(count):
        board = random_game(rng, 0 if rng.random() < 0.05 else rng.randrange(1, max_plies))
        games.append(Game(board, rng.choice([1, 0, -1, 1, 0, -1, None])))
    return games


def chess_row(game: Game) -> Row:
    """A game without a search."""
    board = game.board.root()
    start = None if board.fen() == chess.STARTING_FEN else board.fen()
    positions = positions_of(game.board)
    moves = [core_move(p, m) for p, m in zip(positions, game.board.move_stack, strict=False)]
    return row("chess", moves, game.result, start_fen=start)


def searched_chess_row(game: Game, rng: random.Random) -> Row:
    """A game with policies over some of its legal moves, at some of its plies."""
    policies: list[Policy] = []
    for board in positions_of(game.board)[:-1]:
        legal = list(board.legal_moves)
        chosen = rng.sample(legal, rng.randint(0, len(legal)))
        policies.append([(core_move(board, move), rng.randrange(65536)) for move in chosen])
    plies = range(len(policies))
    root_q = [rng.uniform(-1, 1) for _ in plies]
    root_d = [rng.uniform(0, 1 - abs(q)) for q in root_q]
    return searched(chess_row(game), [rng.randrange(4) for _ in plies], policies, root_q, root_d)


def shard_of(games: Sequence[Game], name: str) -> ShardView:
    """These games as a shard has them, in memory."""
    content = pa.py_buffer(encode_shard([batch(map(chess_row, games))]))
    return view_of(shard_batch(content, Path(name)), Path(name))


def window_of(*shards: Sequence[Game]) -> Window:
    """A window over shards of these games."""
    views = [shard_of(games, f"shard-{index}") for index, games in enumerate(shards)]
    return Window.of_shards("chess", views, [view.moves.tobytes().hex()[:64] for view in views])


def window_of_rows(path: Path, *shards: Sequence[Row]) -> Window:
    """A window over a store of these shards."""
    return Window.of_stores([grown(path, *shards)])
