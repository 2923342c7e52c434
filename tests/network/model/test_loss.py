"""The loss against values worked out by hand, its gradients, and a network that learns by it."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from alphazero.games.batch import Batch
from alphazero.games.registry import get_spec
from alphazero.network.model.loss import SUM_NAMES, LossTerms, loss_terms, rank_of_target
from alphazero.network.model.planes import DeviceBatch, expand_planes, to_device
from alphazero.network.model.resnet import AlphaZeroNet, NetworkOutput
from alphazero.settings.sections import LossConfig, NetworkConfig

CPU = torch.device("cpu")


def two_positions() -> DeviceBatch:
    """Position 0: moves 0 and 2 of 4, target all on 2, won. Position 1: moves 1 and 3, half each, drawn."""
    return to_device(
        Batch(
            packed=np.zeros((2, 4), np.uint8),
            legal_offset=np.array([0, 2, 4], np.int32),
            legal_index=np.array([0, 2, 1, 3], np.int32),
            policy=np.array([0, 1, 0.5, 0.5], np.float32),
            wdl=np.array([[1, 0, 0], [0, 1, 0]], np.float32),
            moves_left=np.array([30, 4], np.float32),
            sample_id=np.arange(2),
        ),
        CPU,
    )


def two_outputs() -> NetworkOutput:
    return NetworkOutput(
        torch.tensor([[1.0, 5.0, 2.0, 0.0], [0.0, 1.0, 0.0, 1.0]], requires_grad=True),
        torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]], requires_grad=True),
        torch.tensor([[10.0], [6.0]], requires_grad=True),
    )


def sums(terms: LossTerms) -> dict[str, float]:
    return dict(zip(SUM_NAMES, terms.sums.tolist(), strict=True))


def test_the_terms_are_those_worked_out_by_hand():
    terms = loss_terms(LossConfig(value_weight=2.0), two_outputs(), two_positions())
    # Position 0: -log(e^2 / (e^1 + e^2)); position 1: both moves have one half.
    policy = (math.log(1 + math.exp(-1)) + math.log(2)) / 2
    value = (-math.log(math.e / (math.e + 2)) - math.log(1 / (2 + math.e**2))) / 2
    # Plies / 20: errors 1.0 and 0.1, Huber with delta 0.5.
    moves_left = (0.5 * (1.0 - 0.25) + 0.5 * 0.1**2) / 2
    assert terms.total.item() == pytest.approx(policy + 2 * value + 0.01 * moves_left, rel=1e-6)
    error = (1 - (math.e - 1) / (math.e + 2)) ** 2 + ((1 - math.e**2) / (2 + math.e**2)) ** 2
    assert sums(terms) == pytest.approx(
        {
            "policy": 2 * policy,
            "value": 2 * value,
            "moves_left": 2 * moves_left,
            "top1": 1,  # position 1's moves are even: not found
            "top5": 2,
            "value_squared_error": error,
            "positions": 2,
        },
        rel=1e-6,
    )


def test_only_legal_moves_get_gradients():
    output = two_outputs()
    loss_terms(LossConfig(), output, two_positions()).total.backward()
    legal = torch.tensor([[True, False, True, False], [False, True, False, True]])
    assert output.policy_BA.grad[~legal].eq(0).all()
    share = 1 / (1 + math.e)
    assert output.policy_BA.grad[0, 0].item() == pytest.approx(share / 2, rel=1e-6)
    assert output.policy_BA.grad[0, 2].item() == pytest.approx(-share / 2, rel=1e-6)
    # The target of position 1 is what the network says already.
    assert output.policy_BA.grad[1].abs().max() < 1e-7


def test_terms_carry_no_gradient_but_the_total():
    terms = loss_terms(LossConfig(), two_outputs(), two_positions())
    assert terms.total.requires_grad
    assert not terms.sums.requires_grad


def test_without_a_moves_left_head_its_term_is_zero():
    output = two_outputs()._replace(moves_left_B1=None)
    terms = loss_terms(LossConfig(), output, two_positions())
    found = sums(terms)
    assert found["moves_left"] == 0
    assert terms.total.item() == pytest.approx((found["policy"] + found["value"]) / 2, rel=1e-6)


def test_a_position_without_legal_moves_adds_no_policy_loss():
    batch = two_positions()
    batch = DeviceBatch(
        **{
            **vars(batch),
            "row_K": batch.row_K[2:],
            "legal_index_K": batch.legal_index_K[2:],
            "policy_K": batch.policy_K[2:],
        }
    )
    terms = loss_terms(LossConfig(), two_outputs(), batch)
    assert sums(terms)["policy"] == pytest.approx(math.log(2), rel=1e-6)


def test_the_loss_is_fp32_inside_autocast_and_from_bf16_logits():
    output = two_outputs()
    halved = NetworkOutput(*(part.detach().to(torch.bfloat16) for part in output))
    with torch.autocast("cpu", torch.bfloat16):
        terms = loss_terms(LossConfig(), halved, two_positions())
    exact = loss_terms(LossConfig(), output, two_positions())
    # These logits are exact in bf16, so only arithmetic in bf16 could make a difference.
    assert terms.total.dtype == torch.float32
    assert terms.total.item() == pytest.approx(exact.total.item(), rel=1e-6)


def test_ranks_count_ties_against_the_network_and_nan_as_no_rank():
    target = torch.tensor([[0.0, 1.0, 0.0]])
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0], [math.nan] * 3])
    assert rank_of_target(logits, target.expand(4, 3)).tolist() == [1, 2, 3, 0]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small layers on a busy machine: threads would wait for each other longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_batch(size: int) -> DeviceBatch:
    """Random chess-like bytes, five moves each, one of them the target; a random result."""
    spec, generator = get_spec("chess"), np.random.default_rng(8)
    moves = [np.sort(generator.choice(spec.policy_size, 5, replace=False)) for _ in range(size)]
    policy = np.zeros((size, 5), np.float32)
    policy[np.arange(size), generator.integers(0, 5, size)] = 1
    return to_device(
        Batch(
            packed=generator.integers(0, 256, (size, spec.packed_bytes), dtype=np.uint8),
            legal_offset=np.arange(0, 5 * size + 1, 5, dtype=np.int32),
            legal_index=np.concatenate(moves).astype(np.int32),
            policy=policy.reshape(-1),
            wdl=np.eye(3, dtype=np.float32)[generator.integers(0, 3, size)],
            moves_left=generator.integers(1, 100, size).astype(np.float32),
            sample_id=np.arange(size),
        ),
        CPU,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_2x32_network_learns_64_random_positions_by_heart():
    spec = get_spec("chess")
    config = NetworkConfig(blocks=2, filters=32, se_ratio=4, value_hidden=32, moves_left=True)
    network = AlphaZeroNet(config, spec, torch.Generator().manual_seed(0))
    batch = random_batch(64)
    planes = expand_planes(batch.packed_BN, spec)
    loss = LossConfig()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    with torch.no_grad():
        start = sums(loss_terms(loss, network(planes), batch))
    assert start["top1"] < 40
    for _ in range(150):
        optimizer.zero_grad()
        loss_terms(loss, network(planes), batch).total.backward()
        optimizer.step()
    with torch.no_grad():
        end = sums(loss_terms(loss, network(planes), batch))
    assert end["top1"] / 64 > 0.95
    assert end["value"] / 64 < 0.1 < start["value"] / 64
    assert end["moves_left"] < start["moves_left"] / 4
