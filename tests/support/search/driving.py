"""What the search tests share: evaluators that are pure functions of a position, settings for the core, lines
of play by text, and a search run to its end."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alphazero._core as _core
from alphazero.games.core_types import Line
from alphazero.games.registry import get_game, make_line
from tests.support.search.reference_rules import Settings

Leaves = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]
Evaluation = tuple[NDArray[np.float32], NDArray[np.float32]]
Evaluator = Callable[[Leaves], Evaluation]  # logits of the legal moves, and win, draw, loss
Search = Any  # one of the core's, or a ReferenceSearch

FILL = _core.HistoryFill.FEN_ONLY


@dataclass(frozen=True)
class VariedEvaluator:
    """Pseudo-random float32 numbers by a hash of the packed bytes and the seed, of many shapes.

    Logits: flat, with ties, mild, peaked, or so far apart that priors underflow to 0. Values: sure,
    nearly sure, even, anything; `win_bias` moves them towards a win (or a loss) of the side to move.
    """

    seed: int
    win_bias: float = 0.0

    def __call__(self, leaves: Leaves) -> Evaluation:
        packed, _, offset = leaves
        logits, wdl = [], []
        for row, first, last in zip(packed, offset, offset[1:], strict=False):
            digest = hashlib.blake2b(row.tobytes(), key=str(self.seed).encode(), digest_size=16).digest()
            rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
            logits.append(self._logits(rng, last - first))
            wdl.append(self._wdl(rng))
        return np.concatenate([*logits, np.zeros(0, np.float32)]), np.array(wdl, np.float32).reshape(-1, 3)

    def _logits(self, rng: np.random.Generator, num_legal: int) -> NDArray[np.float32]:
        shape = rng.integers(6)
        if shape == 0:
            return np.full(num_legal, rng.normal(), np.float32)
        if shape == 1:
            return rng.integers(-1, 2, num_legal).astype(np.float32)
        if shape == 2:
            peaked = rng.normal(size=num_legal)
            peaked[rng.integers(num_legal)] += 12
            return peaked.astype(np.float32)
        if shape == 3:
            return (120 * rng.normal(size=num_legal)).astype(np.float32)
        return ((1 + shape % 2) * rng.normal(size=num_legal)).astype(np.float32)

    def _wdl(self, rng: np.random.Generator) -> NDArray[np.float32]:
        shape = rng.integers(8)
        if shape == 0:
            return np.eye(3, dtype=np.float32)[rng.integers(3)]
        if shape == 1:
            return np.array([1 / 3, 1 / 3, 1 / 3], np.float32)
        sharpness = 8 if shape == 2 else 1
        scores = sharpness * rng.normal(size=3) + [self.win_bias, 0, 0]
        powers = np.exp(scores - scores.max())
        return (powers / powers.sum()).astype(np.float32)


def uniform_evaluator(leaves: Leaves) -> Evaluation:
    """Knows nothing: equal priors, value 0; every choice is a tie until the rules of the game speak."""
    _, index, offset = leaves
    wdl = np.tile(np.array([0.25, 0.5, 0.25], np.float32), (len(offset) - 1, 1))
    return np.zeros(len(index), np.float32), wdl


def core_settings(settings: Settings) -> _core.SearchSettings:
    """The same settings for the core."""
    core = _core.SearchSettings()
    for name, value in dataclasses.asdict(settings).items():
        if name == "algorithm":
            value = getattr(_core.SearchAlgorithm, value.upper())
        setattr(core, name, value)
    return core


def core_search(line: Line, settings: Settings) -> Search:
    """The core's search for the line's game, not started yet; the reference answers to the same calls."""
    return get_game(line.NAME).core.search(core_settings(settings))


def line_of(game: str, start: str | None = None, moves: str = "") -> Line:
    """A line of play from a position (None: the start of the game) and moves as text."""
    line = make_line(game, start)
    for move in moves.split():
        line.push_text(move)
    return line


def sample_noise(settings: Settings, num_legal: int, seed: int) -> NDArray[np.float64] | None:
    """What the settings ask for at a root: a Dirichlet sample, Gumbels, or nothing."""
    rng = np.random.default_rng([seed, num_legal])
    if settings.algorithm == "gumbel":
        return rng.gumbel(size=num_legal)
    if settings.noise_epsilon > 0:
        return rng.dirichlet(np.full(num_legal, 0.3))
    return None


def search_to_end(search: Search, evaluator: Evaluator) -> int:
    """Collect and apply until nothing is left; returns the number of evaluations asked for."""
    evaluations = 0
    while True:
        leaves = search.collect(FILL)
        if len(leaves[0]) == 0:
            return evaluations
        evaluations += len(leaves[0])
        search.apply(*evaluator(leaves))
