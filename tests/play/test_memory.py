"""Five thousand moves a lane need no more memory than the first thousand.

The bound is on a line fitted to the resident memory after each stretch of moves, in a process of its own.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import alphazero._core as _core
from alphazero.play.search_settings import self_play_settings
from alphazero.play.selfplay import new_lane
from alphazero.search.batched import run_pool
from alphazero.settings.self_play import SearchConfig, SelfPlayConfig
from tests.support.selfplay.made_up_evaluator import MadeUpEvaluation

LANES, STRETCH, STRETCHES, WARM_UP = 8, 50, 100, 20
BYTES_A_MOVE = 8.0  # a game that is kept costs some 100 a move


class UniformEvaluator:
    """Every move alike, every position even."""

    batch_size = LANES
    batches_ahead = 2

    def submit(self, packed, legal_index, legal_offset) -> MadeUpEvaluation:
        return MadeUpEvaluation(
            np.zeros(len(legal_index), np.float32), np.full((len(packed), 3), 1 / 3, np.float32)
        )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_a_move(pool_class: str, algorithm: str) -> float:
    """How much the resident memory of this process grows by the moves of self-play."""
    search = SearchConfig(algorithm=algorithm, simulations=32)
    settings = self_play_settings(search, SelfPlayConfig(max_plies=200), seed=7)
    pool = getattr(_core, pool_class)(settings, LANES // 2, 2, 1)
    for lane in range(LANES):
        pool.add_lane(new_lane(lane))
    evaluator, memory = UniformEvaluator(), []
    for _ in range(STRETCHES):
        pool.begin(STRETCH)
        assert run_pool(pool, evaluator, lambda size: True)
        assert pool.moves == LANES * STRETCH
        pool.take_finished()
        memory.append(resident_bytes())
    moves = LANES * STRETCH * np.arange(STRETCHES)
    return float(np.polyfit(moves[WARM_UP:], memory[WARM_UP:], 1)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool_class", "algorithm"),
    [("ChessSelfPlay", "puct"), ("ChessSelfPlay", "gumbel"), ("Connect4SelfPlay", "puct")],
)
def test_memory_does_not_grow_over_five_thousand_moves(pool_class: str, algorithm: str) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        assert process.submit(bytes_a_move, pool_class, algorithm).result() < BYTES_A_MOVE
