"""Games of self-play that begin with few pieces, as lanes under way whose first moves were random."""

from __future__ import annotations

import random
from collections.abc import Iterable

import chess
import numpy as np

import alphazero._core as _core
from alphazero.games.registry import make_line
from alphazero.games.tablebases import Tablebases
from alphazero.play import lanes
from alphazero.play.selfplay import new_lane, play
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluator


def game_of_few_pieces(number: int, most: int = 6) -> _core.SelfPlayGame:
    """A lane whose game has come, by random moves that capture where they can, to few pieces."""
    rng = random.Random(number)
    while True:
        board = chess.Board()
        while not board.is_game_over(claim_draw=True) and len(board.piece_map()) > most:
            moves = list(board.legal_moves)
            takes = [move for move in moves if board.is_capture(move)]
            board.push(rng.choice(takes or moves))
        if not board.is_game_over(claim_draw=True):
            break
    line, game = make_line("chess"), new_lane(number)
    moves = []
    for move in board.move_stack:
        moves.append(line.text_to_move(move.uci()))
        line.push(moves[-1])
    plies = len(moves)
    game.moves = np.array(moves, np.uint16)
    game.flags = np.zeros(plies, np.uint8)
    for name in ("root_q", "root_d", "best_q", "best_d", "orig_q", "orig_d"):
        setattr(game, name, np.zeros(plies, np.float32))
    game.visits = np.zeros(plies, np.uint32)
    game.policy_offset = np.zeros(plies + 1, np.uint32)
    return game


def settings() -> _core.SelfPlaySettings:
    made = _core.SelfPlaySettings()
    search = _core.SearchSettings()
    search.simulations = 4
    made.search, made.seed = search, 11
    return made


def played(
    numbers: Iterable[int], tables: Tablebases | None, *, budget: int = 400, threads: int = 1, rounds: int = 1
) -> dict[int, _core.SelfPlayGame]:
    """The first game of each lane that ended, in rounds as a run that is resumed plays them."""
    games, found = [game_of_few_pieces(number) for number in numbers], {}
    for _ in range(rounds):
        done = play(
            "chess",
            settings(),
            games,
            budget // rounds,
            MadeUpEvaluator("chess", 16),
            num_threads=threads,
            to_the_end=rounds == 1,
            tables=tables,
        )
        found = {game.lane: game for game in done.finished if game.number == 0} | found
        content = lanes.to_bytes(lanes.to_batch(done.under_way))
        games = lanes.from_batch(lanes.from_bytes(content, "test"), under_way=True)
    return found
