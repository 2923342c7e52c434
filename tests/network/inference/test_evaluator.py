"""The frozen network says what the module says; batches in flight; new weights in place."""

import numpy as np
import pytest
import torch

from alphazero.network.inference import evaluator as evaluator_module
from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.planes import expand_planes
from tests.support.network.evaluator_nets import positions, trained_like

CPU = torch.device("cpu")
GAMES = ("chess", "connect4", "tictactoe")


@pytest.mark.parametrize("game", GAMES)
def test_folded_evaluation_equals_the_module(game: str):
    network = trained_like(game)
    packed, legal_index, legal_offset = positions(game, 11)
    result = NetworkEvaluator(network, CPU, "fp32", 4)(packed, legal_index, legal_offset)
    with torch.no_grad():
        output = network.eval()(expand_planes(torch.from_numpy(packed), network.spec))
    rows = np.repeat(np.arange(11), np.diff(legal_offset))
    np.testing.assert_allclose(
        result.legal_logits, output.policy_BA.numpy()[rows, legal_index], rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(result.wdl, output.wdl_B3.softmax(1).numpy(), rtol=1e-3, atol=1e-5)
    assert result.legal_logits.dtype == result.wdl.dtype == np.float32


def test_no_positions_give_no_evaluations():
    network = trained_like("tictactoe")
    evaluator = NetworkEvaluator(network, CPU, "fp32", 4)
    empty = evaluator(
        np.zeros((0, network.spec.packed_bytes), np.uint8), np.zeros(0, np.int32), np.zeros(1, np.int32)
    )
    assert empty.legal_logits.shape == (0,)
    assert empty.wdl.shape == (0, 3)


def test_the_given_network_stays_as_it_was():
    network = trained_like("connect4")
    before = {key: value.clone() for key, value in network.state_dict().items()}
    evaluator = NetworkEvaluator(network, CPU, "bf16", 4)
    evaluator(*positions("connect4", 3))
    assert network.training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    assert all(value.requires_grad for value in network.parameters())


def test_bf16_stays_near_fp32():
    network = trained_like("connect4")
    arrays = positions("connect4", 6)
    exact = NetworkEvaluator(network, CPU, "fp32", 6)(*arrays)
    rounded = NetworkEvaluator(network, CPU, "bf16", 6)(*arrays)
    np.testing.assert_allclose(rounded.wdl, exact.wdl, atol=0.05)
    assert np.abs(rounded.wdl - exact.wdl).max() > 0  # it is another precision


def test_two_batches_are_in_flight_and_a_third_is_refused():
    network = trained_like("connect4")
    evaluator = NetworkEvaluator(network, CPU, "fp32", 8)
    assert evaluator.batches_ahead == 1  # for on the CPU nothing is gained by the second
    first, second = positions("connect4", 5, seed=1), positions("connect4", 8, seed=2)
    expected = [evaluator(*first), evaluator(*second)]
    pending = [evaluator.submit(*first), evaluator.submit(*second)]
    with pytest.raises(RuntimeError, match="2 batches in flight"):
        evaluator.submit(*first)
    # Results in any order, and again.
    for number in (1, 0, 1):
        result = pending[number].result()
        np.testing.assert_array_equal(result.legal_logits, expected[number].legal_logits)
        np.testing.assert_array_equal(result.wdl, expected[number].wdl)
    evaluator.submit(*first).result()


def test_results_and_arguments_are_the_callers_own():
    network = trained_like("connect4")
    evaluator = NetworkEvaluator(network, CPU, "fp32", 8, in_flight=1)
    arrays = positions("connect4", 8, seed=1)
    expected = evaluator(*arrays)
    given = [array.copy() for array in arrays]
    pending = evaluator.submit(*given)
    for array in given:
        array[:] = 0
    result = pending.result()
    evaluator(*positions("connect4", 8, seed=2))
    np.testing.assert_array_equal(result.legal_logits, expected.legal_logits)
    np.testing.assert_array_equal(result.wdl, expected.wdl)


def test_all_legal_moves_of_a_full_batch_fit_and_one_more_does_not():
    network = trained_like("connect4")
    evaluator = NetworkEvaluator(network, CPU, "fp32", 4)
    packed = positions("connect4", 4)[0]
    all_moves = np.tile(np.arange(7, dtype=np.int32), 4)
    result = evaluator.submit(packed, all_moves, np.arange(0, 29, 7, dtype=np.int32)).result()
    with torch.no_grad():
        output = network.eval()(expand_planes(torch.from_numpy(packed), network.spec))
    np.testing.assert_allclose(result.legal_logits, output.policy_BA.flatten(), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r"4 positions with 29 .*28"):
        evaluator.submit(packed, np.zeros(29, np.int32), np.array([0, 7, 14, 21, 29], np.int32))
    with pytest.raises(ValueError, match="5 positions"):
        evaluator.submit(*positions("connect4", 5))


@pytest.mark.parametrize("offset", [[0, 1], [1, 1, 2], [0, 1, 3]])
def test_offsets_that_do_not_span_the_moves_are_refused(offset):
    network = trained_like("connect4")
    evaluator = NetworkEvaluator(network, CPU, "fp32", 4)
    with pytest.raises(ValueError, match=r"legal_offset: .*3 numbers"):
        evaluator.submit(positions("connect4", 2)[0], np.zeros(2, np.int32), np.array(offset, np.int32))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("onednn", [True, False], ids=["onednn", "modules"])
def test_new_weights_give_what_a_new_evaluator_gives(monkeypatch, precision, onednn):
    if not onednn:
        monkeypatch.setattr(evaluator_module, "why_not_onednn", lambda dtype: "not expected here")
    old, new = trained_like("chess", seed=4), trained_like("chess", seed=5)
    arrays = positions("chess", 6)
    evaluator = NetworkEvaluator(old, CPU, precision, 8)
    before = evaluator(*arrays)
    pending = evaluator.submit(*arrays)
    evaluator.load(new.state_dict())
    after = evaluator(*arrays)
    expected = NetworkEvaluator(new, CPU, precision, 8)(*arrays)
    np.testing.assert_array_equal(pending.result().wdl, before.wdl)
    np.testing.assert_array_equal(after.legal_logits, expected.legal_logits)
    np.testing.assert_array_equal(after.wdl, expected.wdl)
    assert np.abs(after.wdl - before.wdl).max() > 1e-3


@pytest.mark.parametrize("onednn", [True, False], ids=["onednn", "modules"])
def test_the_evaluator_does_not_follow_the_network_it_came_from(monkeypatch, onednn):
    if not onednn:
        monkeypatch.setattr(evaluator_module, "why_not_onednn", lambda dtype: "not expected here")
    network = trained_like("connect4")
    arrays = positions("connect4", 6)
    evaluator = NetworkEvaluator(network, CPU, "fp32", 8)
    evaluator.load(network.state_dict())
    before = evaluator(*arrays)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.zero_()
    np.testing.assert_array_equal(evaluator(*arrays).wdl, before.wdl)
    np.testing.assert_array_equal(evaluator(*arrays).legal_logits, before.legal_logits)


def test_averaged_weights_without_the_counters_are_taken():
    network = trained_like("connect4")
    evaluator = NetworkEvaluator(network, CPU, "fp32", 8)
    arrays = positions("connect4", 6)
    before = evaluator(*arrays)
    evaluator.load({k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")})
    np.testing.assert_array_equal(evaluator(*arrays).wdl, before.wdl)


def test_the_moves_left_head_is_left_out():
    network = trained_like("connect4", moves_left=True)
    evaluator = NetworkEvaluator(network, CPU, "fp32", 8)
    before = evaluator(*positions("connect4", 6))
    evaluator.load(network.state_dict())
    np.testing.assert_array_equal(evaluator(*positions("connect4", 6)).wdl, before.wdl)


def test_a_cpu_without_onednn_says_so_and_computes(monkeypatch):
    network = trained_like("chess")
    arrays = positions("chess", 6)
    fused = NetworkEvaluator(network, CPU, "fp32", 8)
    assert fused.description.startswith("oneDNN fused")
    monkeypatch.setattr(evaluator_module, "why_not_onednn", lambda dtype: "oneDNN has no such thing")
    plain = NetworkEvaluator(network, CPU, "fp32", 8)
    assert plain.description.startswith("PyTorch operators") and "no such thing" in plain.description
    np.testing.assert_allclose(plain(*arrays).wdl, fused(*arrays).wdl, atol=1e-5)
