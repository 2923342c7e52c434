"""One network behind evaluators of several batch sizes."""

import numpy as np
import pytest
import torch

from alphazero.config import NetworkConfig
from alphazero.games.registry import get_spec, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.ladder import EvaluatorLadder, batch_sizes
from alphazero.network.model.resnet import AlphaZeroNet


def test_sizes_grow_fourfold_to_the_largest() -> None:
    assert batch_sizes(1) == [1]
    assert batch_sizes(4) == [1, 4]
    assert batch_sizes(32) == [1, 4, 16, 32]
    assert batch_sizes(256) == [1, 4, 16, 64, 256]


def test_each_batch_is_computed_by_the_smallest_evaluator_that_has_room() -> None:
    spec = get_spec("connect4")
    network = AlphaZeroNet(NetworkConfig(game="connect4", blocks=1, filters=8), spec)
    device = torch.device("cpu")
    ladder = EvaluatorLadder(network, spec, device, "fp32", 6)
    line = make_line("connect4")
    legal = line.legal_indices()
    for rows, size in ((1, 1), (2, 4), (4, 4), (5, 6)):
        packed = np.stack([line.packed()] * rows)
        offset = np.arange(rows + 1, dtype=np.int32) * len(legal)
        asked = (packed, np.tile(legal, rows), offset)
        given = ladder.submit(*asked).result()
        plain = NetworkEvaluator(network, spec, device, "fp32", size).submit(*asked).result()
        np.testing.assert_array_equal(given.legal_logits, plain.legal_logits)
        np.testing.assert_array_equal(given.wdl, plain.wdl)
    with pytest.raises(ValueError, match="7 positions"):
        ladder.submit(np.stack([line.packed()] * 7), legal, offset)
