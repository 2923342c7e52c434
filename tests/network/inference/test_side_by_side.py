"""Batches computed side by side: the same figures as one after the other, at the same time."""

import threading
import time

import numpy as np
import pytest
import torch

from alphazero.games.registry import get_spec, make_line
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.purpose import (
    CPU_BATCH_SIZE,
    EvaluatorLadder,
    SideBySide,
    evaluator_for_tree,
)
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def network() -> AlphaZeroNet:
    return AlphaZeroNet(NetworkConfig(game="connect4", blocks=1, filters=8), get_spec("connect4"))


def batch_of(moves: list[int], rows: int):
    line = make_line("connect4")
    for move in moves:
        line.push(move)
    legal = line.legal_indices()
    offset = np.arange(rows + 1, dtype=np.int32) * len(legal)
    return np.stack([line.packed()] * rows), np.tile(legal, rows), offset


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_each_batch_is_computed_as_alone(network: AlphaZeroNet, num_threads: int) -> None:
    evaluator = evaluator_for_tree(network, CPU, "fp32", num_threads=num_threads)
    assert evaluator.batch_size == CPU_BATCH_SIZE
    asked = [batch_of([column], rows) for column in range(7) for rows in (1, 3, 16)]
    given = [evaluator.submit(*each) for each in asked]
    for each, pending in zip(asked, given, strict=True):
        size = {1: 1, 3: 4, 16: 16}[len(each[0])]
        alone = NetworkEvaluator(network, CPU, "fp32", size).submit(*each).result()
        np.testing.assert_array_equal(pending.result().legal_logits, alone.legal_logits)
        np.testing.assert_array_equal(pending.result().wdl, alone.wdl)


def test_two_batches_are_computed_at_a_time_and_no_third(network: AlphaZeroNet) -> None:
    inside, most, gate = [], [], threading.Event()

    class Watched(EvaluatorLadder):
        def submit(self, *arrays):
            inside.append(threading.get_ident())
            most.append(len(inside))
            gate.wait(10)
            inside.remove(threading.get_ident())
            return super().submit(*arrays)

    evaluator = SideBySide(Watched(network, CPU, "fp32", 4), 2, 2)
    given = [evaluator.submit(*batch_of([], 2)) for _ in range(5)]
    for _ in range(500):
        if len(most) == 2:
            break
        time.sleep(0.01)
    assert most == [1, 2]
    gate.set()
    assert all(pending.result().wdl.shape == (2, 3) for pending in given)
    assert max(most) == 2


def test_what_the_ladder_refuses_the_result_raises(network: AlphaZeroNet) -> None:
    evaluator = SideBySide(EvaluatorLadder(network, CPU, "fp32", 6), 2, 2)
    with pytest.raises(ValueError, match="7 positions"):
        evaluator.submit(*batch_of([], 7)).result()
    assert evaluator.submit(*batch_of([], 6)).result().wdl.shape == (6, 3)
