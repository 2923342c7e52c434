"""Figures of a network on positions, against slow arithmetic on a batch made by hand."""

import numpy as np
import pytest
import torch

from alphazero.games.batch import Batch
from alphazero.games.registry import get_spec
from alphazero.measure.known_games import metrics_of, sum_over_positions
from alphazero.network.model.resnet import NetworkOutput

SPEC = get_spec("tictactoe")
CPU = torch.device("cpu")


class Oracle:
    """A network that gives prepared logits, a batch a call."""

    def __init__(self, outputs: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.spec = SPEC
        self._outputs = iter(outputs)

    def __call__(self, planes_BCHW: torch.Tensor) -> NetworkOutput:
        policy, wdl = next(self._outputs)
        assert planes_BCHW.shape == (len(policy), SPEC.num_planes, 3, 3)
        return NetworkOutput(torch.tensor(policy), torch.tensor(wdl), None)


def make_batch(legal: list[list[int]], target: list[int], result: list[int]) -> Batch:
    """Positions by their legal policy indices, the move played, and the mover's result."""
    offsets = np.cumsum([0, *map(len, legal)]).astype(np.int32)
    policy = np.concatenate(
        [np.float32(np.array(moves) == move) for moves, move in zip(legal, target, strict=True)]
    )
    wdl = np.array([[r == 1, r == 0, r == -1] for r in result], np.float32)
    return Batch(
        packed=np.zeros((len(legal), SPEC.packed_bytes), np.uint8),
        legal_offset=offsets,
        legal_index=np.concatenate(legal).astype(np.int32),
        policy=policy,
        wdl=wdl,
        moves_left=np.zeros(len(legal), np.float32),
        sample_id=np.arange(len(legal), dtype=np.int64),
    )


def slowly(legal: list[list[int]], target: list[int], result: list[int], policy: np.ndarray, wdl: np.ndarray):
    """The figures of these positions one at a time: top1, top5, policy loss, value loss, value mse."""
    rows = []
    for moves, move, outcome, logits, values in zip(legal, target, result, policy, wdl, strict=True):
        order = sorted(moves, key=lambda index: -logits[index])
        weights = {index: np.exp(float(logits[index])) for index in moves}
        share = np.exp(values.astype(np.float64))
        share /= share.sum()
        rows.append(
            (
                order[0] == move,
                move in order[:5],
                -np.log(weights[move] / sum(weights.values())),
                -np.log(share[1 - outcome]),
                (share[0] - share[2] - outcome) ** 2,
            )
        )
    return np.mean(np.array(rows, float), axis=0)


def test_figures_equal_slow_arithmetic_over_the_legal_moves():
    rng = np.random.default_rng(3)
    legal = [sorted(rng.choice(9, rng.integers(1, 10), replace=False).tolist()) for _ in range(60)]
    target = [int(rng.choice(moves)) for moves in legal]
    result = rng.integers(-1, 2, 60).tolist()
    policy = rng.normal(0, 2, (60, 9)).astype(np.float32)
    wdl = rng.normal(0, 1, (60, 3)).astype(np.float32)
    # An illegal move the network likes best must change nothing.
    for moves, logits in zip(legal, policy, strict=True):
        logits[[index for index in range(9) if index not in moves]] = 50.0
    expected = slowly(legal, target, result, policy, wdl)
    parts = [slice(0, 25), slice(25, 60)]
    batches = [make_batch(legal[part], target[part], result[part]) for part in parts]
    oracle = Oracle([(policy[part], wdl[part]) for part in parts])
    found = metrics_of(sum_over_positions(oracle, batches, CPU, "fp32"))
    assert found.num_positions == 60
    figures = (found.policy_top1, found.policy_top5, found.policy_loss, found.value_loss, found.value_mse)
    np.testing.assert_allclose(figures, expected, rtol=1e-5)
    assert 0 < found.policy_top1 < found.policy_top5 < 1


def test_the_sixth_best_move_is_not_among_five():
    logits = np.arange(9, dtype=np.float32)[None]
    for move, top1, top5 in ((8, 1, 1), (4, 0, 1), (3, 0, 0)):
        oracle = Oracle([(logits, np.zeros((1, 3), np.float32))])
        found = metrics_of(
            sum_over_positions(oracle, [make_batch([list(range(9))], [move], [0])], CPU, "fp32")
        )
        assert (found.policy_top1, found.policy_top5) == (top1, top5)


def test_a_network_that_knows_nothing_has_the_entropy_of_the_legal_moves():
    oracle = Oracle([(np.zeros((2, 9), np.float32), np.zeros((2, 3), np.float32))])
    batch = make_batch([[0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8]], [1, 4], [1, -1])
    found = metrics_of(sum_over_positions(oracle, [batch], CPU, "fp32"))
    assert found.policy_loss == pytest.approx((np.log(3) + np.log(9)) / 2)
    assert found.value_loss == pytest.approx(np.log(3))
    assert found.value_mse == 1.0
    assert found.policy_top1 == 0.0  # a tie counts against it


def test_sums_of_ranks_add_up_to_the_sums_of_one():
    rng = np.random.default_rng(5)
    policy, wdl = rng.normal(size=(8, 9)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
    whole = make_batch([list(range(9))] * 8, rng.integers(0, 9, 8).tolist(), rng.integers(-1, 2, 8).tolist())
    target = whole.policy.reshape(8, 9).argmax(1).tolist()
    result = (whole.wdl[:, 0] - whole.wdl[:, 2]).astype(int).tolist()
    sums = sum_over_positions(Oracle([(policy, wdl)]), [whole], CPU, "fp32")
    parts = [
        sum_over_positions(
            Oracle([(policy[part], wdl[part])]),
            [make_batch([list(range(9))] * 4, target[part], result[part])],
            CPU,
            "fp32",
        )
        for part in (slice(0, 4), slice(4, 8))
    ]
    torch.testing.assert_close(parts[0] + parts[1], sums, rtol=1e-6, atol=1e-6)
    assert sums.dtype == torch.float64
