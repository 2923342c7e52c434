"""Windows of random chess games made with python-chess, for the tests of the sampler and the loader."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import chess
import numpy as np

from alphazero.data.sampling.window import Window
from alphazero.data.store.store import ShardView
from tests.support.games.chess_reference import core_move, random_game


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


def shard_of(games: Sequence[Game], name: str) -> ShardView:
    """These games in the columns of a shard, in memory."""
    moves: list[int] = []
    moves_offset, fen_offset = [0], [0]
    fens = b""
    for game in games:
        replay = game.board.root()
        if replay.fen() != chess.STARTING_FEN:
            fens += replay.fen().encode()
        for move in game.board.move_stack:
            moves.append(core_move(replay, move))
            replay.push(move)
        moves_offset.append(len(moves))
        fen_offset.append(len(fens))
    return ShardView(
        path=Path(name),
        num_games=len(games),
        num_plies=len(moves),
        moves=np.array(moves, np.uint16),
        moves_offset=np.array(moves_offset, np.int32),
        result=np.array([game.result or 0 for game in games], np.int8),
        result_valid=np.array([game.result is not None for game in games], np.bool_),
        fen_bytes=np.frombuffer(fens, np.uint8),
        fen_offset=np.array(fen_offset, np.int32),
    )


def window_of(*shards: Sequence[Game]) -> Window:
    """A window over shards of these games."""
    views = [shard_of(games, f"shard-{index}") for index, games in enumerate(shards)]
    return Window.of_shards("chess", views, [view.moves.tobytes().hex()[:64] for view in views])
