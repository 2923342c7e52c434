"""Players: what chooses a move in each of many positions at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from alphazero import _core
from alphazero.games.core_types import Line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.search.line_search import search_lines

# The move to play at the end of each line; the lines are of one game, and none is over.
Player: TypeAlias = Callable[[Sequence[Line]], Sequence[int]]


def network_player(
    evaluator: NetworkEvaluator, *, fill: _core.HistoryFill = _core.HistoryFill.FEN_ONLY
) -> Player:
    """Plays the move with the network's largest share, the lowest policy index among equals; no search."""

    def choose(lines: Sequence[Line]) -> list[int]:
        legal = [line.legal_indices() for line in lines]
        offset = np.concatenate([[0], np.cumsum([len(indices) for indices in legal])]).astype(np.int32)
        packed = np.stack([line.packed(fill) for line in lines])
        logits = evaluator(packed, np.concatenate(legal), offset).legal_logits
        return [
            line.index_to_move(int(indices[logits[begin : begin + len(indices)].argmax()]))
            for line, indices, begin in zip(lines, legal, offset, strict=False)
        ]

    return choose


def search_player(
    evaluator: NetworkEvaluator,
    settings: _core.SearchSettings,
    *,
    num_threads: int = 1,
    after_batch: Callable[[], None] = lambda: None,
) -> Player:
    """Plays the search's best move, without noise; after_batch is called after each batch of positions."""

    def choose(lines: Sequence[Line]) -> list[int]:
        results = search_lines(lines, evaluator, settings, num_threads=num_threads, after_batch=after_batch)
        return [found.move for found in results]

    return choose


def random_player(seed: int) -> Player:
    """Plays any legal move, all as likely."""
    generator = random.Random(seed)

    def choose(lines: Sequence[Line]) -> list[int]:
        return [generator.choice(line.legal()) for line in lines]

    return choose
