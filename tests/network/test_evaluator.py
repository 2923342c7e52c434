"""The frozen network says what the module says, however many positions come along."""

import numpy as np
import pytest
import torch
from torch import nn

from alphazero.config import NetworkConfig
from alphazero.games.registry import get_spec
from alphazero.network.evaluator import NetworkEvaluator
from alphazero.network.folding import fold_batch_norm
from alphazero.network.planes import expand_planes
from alphazero.network.resnet import AlphaZeroNet

CPU = torch.device("cpu")
GAMES = ("chess", "connect4", "tictactoe")


def trained_like(game: str) -> AlphaZeroNet:
    """A network whose BatchNorms hold statistics and factors of their own."""
    generator = torch.Generator().manual_seed(4)
    config = NetworkConfig(game=game, blocks=2, filters=16, se_ratio=4, value_hidden=8)
    network = AlphaZeroNet(config, get_spec(game), generator)
    for name, tensor in network.state_dict().items():
        if "norm" in name and tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return network.train()


def positions(game: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random packed bytes with one to four legal moves each."""
    spec, generator = get_spec(game), np.random.default_rng(6)
    packed = generator.integers(0, 256, (count, spec.packed_bytes), dtype=np.uint8)
    moves = [
        np.sort(generator.choice(spec.policy_size, generator.integers(1, 5), replace=False)).astype(np.int32)
        for _ in range(count)
    ]
    return packed, np.concatenate(moves), np.cumsum([0, *map(len, moves)], dtype=np.int32)


@pytest.mark.parametrize("game", GAMES)
def test_folded_evaluation_equals_the_module(game: str):
    network = trained_like(game)
    packed, legal_index, legal_offset = positions(game, 11)
    result = NetworkEvaluator(network, network.spec, CPU, "fp32", 4)(packed, legal_index, legal_offset)
    with torch.no_grad():
        output = network.eval()(expand_planes(torch.from_numpy(packed), network.spec))
    rows = np.repeat(np.arange(11), np.diff(legal_offset))
    np.testing.assert_allclose(
        result.legal_logits, output.policy_BA.numpy()[rows, legal_index], rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(result.wdl, output.wdl_B3.softmax(1).numpy(), rtol=1e-3, atol=1e-5)
    assert result.legal_logits.dtype == result.wdl.dtype == np.float32


def test_company_does_not_change_an_evaluation():
    network = trained_like("chess")
    evaluator = NetworkEvaluator(network, network.spec, CPU, "fp32", 8)
    packed, legal_index, legal_offset = positions("chess", 8)
    together = evaluator(packed, legal_index, legal_offset)
    for index in range(8):
        first, last = legal_offset[index], legal_offset[index + 1]
        alone = evaluator(
            packed[index : index + 1], legal_index[first:last], np.array([0, last - first], np.int32)
        )
        # Another row of the batch may sum in another order; not more than rounding.
        np.testing.assert_allclose(
            alone.legal_logits, together.legal_logits[first:last], rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(alone.wdl[0], together.wdl[index], rtol=1e-5)


def test_no_positions_give_no_evaluations():
    network = trained_like("tictactoe")
    evaluator = NetworkEvaluator(network, network.spec, CPU, "fp32", 4)
    empty = evaluator(
        np.zeros((0, network.spec.packed_bytes), np.uint8), np.zeros(0, np.int32), np.zeros(1, np.int32)
    )
    assert empty.legal_logits.shape == (0,)
    assert empty.wdl.shape == (0, 3)


def test_the_given_network_stays_as_it_was():
    network = trained_like("connect4")
    before = {key: value.clone() for key, value in network.state_dict().items()}
    evaluator = NetworkEvaluator(network, network.spec, CPU, "bf16", 4)
    evaluator(*positions("connect4", 3))
    assert network.training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    assert all(value.requires_grad for value in network.parameters())


def test_folding_leaves_no_batch_norm():
    folded = fold_batch_norm(trained_like("chess"))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())


def test_bf16_stays_near_fp32():
    network = trained_like("connect4")
    arrays = positions("connect4", 6)
    exact = NetworkEvaluator(network, network.spec, CPU, "fp32", 6)(*arrays)
    rounded = NetworkEvaluator(network, network.spec, CPU, "bf16", 6)(*arrays)
    np.testing.assert_allclose(rounded.wdl, exact.wdl, atol=0.05)
    assert np.abs(rounded.wdl - exact.wdl).max() > 0  # it is another precision
