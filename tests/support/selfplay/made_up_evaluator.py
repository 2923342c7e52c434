"""An evaluator whose numbers are a function of each packed position alone, as a network's should be."""

import hashlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass
class MadeUpEvaluation:
    legal_logits: np.ndarray
    wdl: np.ndarray

    def result(self) -> "MadeUpEvaluation":
        return self


class MadeUpEvaluator:
    def __init__(self, game: str, batch_size: int, batches_ahead: int = 2) -> None:
        self.batch_size = batch_size
        self.batches_ahead = batches_ahead
        self.positions = 0

    def submit(self, packed, legal_index, legal_offset) -> MadeUpEvaluation:
        assert 0 < len(packed) <= self.batch_size
        self.positions += len(packed)
        logits, wdl = [], []
        for row, (begin, end) in enumerate(pairwise(legal_offset)):
            seed = hashlib.blake2b(packed[row].tobytes(), digest_size=8).digest()
            rng = np.random.default_rng(int.from_bytes(seed, "little"))
            logits.append(rng.normal(0, 2, end - begin))
            wdl.append(rng.dirichlet((1, 1, 1)))
        return MadeUpEvaluation(np.concatenate(logits).astype(np.float32), np.array(wdl, np.float32))
