"""The evaluator on a CUDA device: graphs, batches in flight, weights in place, exactness."""

import numpy as np
import pytest
import torch

from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.inference.kernels import (
    ATTENTION_KERNELS,
    CUDNN,
    OPERATORS,
    TOWER_KERNELS,
    evaluation_passes,
    trial,
    use_kernels,
    why_not,
)
from alphazero.network.inference.program import CudaRunner
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig
from tests.support.network.evaluator_nets import calibrate, chosen, positions, trained_like

pytestmark = [
    pytest.mark.gpu(order=2, seconds=10),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
CUDA = torch.device("cuda")


def chess_network(seed: int = 4, se_ratio: int = 0) -> AlphaZeroNet:
    network = trained_like("chess", seed, blocks=4, filters=64, se_ratio=se_ratio, value_hidden=64)
    calibrate(network, positions("chess", 64)[0])
    return network


def attention_network(seed: int = 4, embedding: str = "dense") -> AlphaZeroNet:
    return trained_like(
        "chess",
        seed,
        **{"body": "attention", "policy_head": "attention", "blocks": 4, "filters": 64, "heads": 4},
        **{"ffn_width": 128, "smolgen_channels": 4, "smolgen_hidden": 32, "smolgen_size": 32},
        **{"embedding": embedding, "embedding_width": 16, "value_hidden": 64},
    )


def make(network: AlphaZeroNet, precision: str = "bf16", kernels: str = "") -> NetworkEvaluator:
    use_kernels(kernels)
    try:
        return NetworkEvaluator(network, CUDA, precision, 64)
    finally:
        use_kernels("")


@pytest.mark.parametrize("se_ratio", [0, 8])
@pytest.mark.parametrize("kernels", TOWER_KERNELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_graph_is_captured_and_says_what_the_cpu_says(precision, kernels, se_ratio):
    network, arrays = chess_network(se_ratio=se_ratio), positions("chess", 50)
    evaluator = make(network, precision, kernels)
    assert evaluator.description.endswith("as a CUDA graph")
    exact = NetworkEvaluator(network, torch.device("cpu"), "fp32", 64)(*arrays)
    result = evaluator(*arrays)
    tolerance = 5e-3 if precision == "fp32" else 0.05
    np.testing.assert_allclose(result.wdl, exact.wdl, atol=tolerance)
    np.testing.assert_allclose(result.legal_logits, exact.legal_logits, rtol=0.05, atol=20 * tolerance)


@pytest.mark.parametrize("embedding", ["dense", "map"])
@pytest.mark.parametrize("kernels", ATTENTION_KERNELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_an_attention_body_is_captured_and_says_what_the_cpu_says(precision, kernels, embedding):
    network, arrays = attention_network(embedding=embedding), positions("chess", 50)
    evaluator = make(network, precision, kernels)
    assert evaluator.description.endswith("as a CUDA graph")
    exact = NetworkEvaluator(network, torch.device("cpu"), "fp32", 64)(*arrays)
    result = evaluator(*arrays)
    tolerance = 5e-3 if precision == "fp32" else 0.05
    np.testing.assert_allclose(result.wdl, exact.wdl, atol=tolerance)
    np.testing.assert_allclose(result.legal_logits, exact.legal_logits, rtol=0.05, atol=20 * tolerance)


@pytest.mark.parametrize(
    ("network", "kernels"),
    [(chess_network, CUDNN), (chess_network, OPERATORS), (attention_network, OPERATORS)],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_company_place_and_padding_change_no_bit(precision, network, kernels):
    arrays = positions("chess", 64)
    evaluator = make(network(), precision, kernels)
    expected = evaluator(*arrays)
    rng = np.random.default_rng(1)
    for count in (64, 21, 1):
        numbers = rng.permutation(64)[:count]
        result = evaluator(*chosen(arrays, numbers))
        logits = chosen((arrays[0], expected.legal_logits, arrays[2]), numbers)[1]
        np.testing.assert_array_equal(result.wdl, expected.wdl[numbers])
        np.testing.assert_array_equal(result.legal_logits, logits)


def test_batches_in_flight_do_not_mix():
    evaluator = make(chess_network())
    assert evaluator.batches_ahead == 2
    batches = [positions("chess", 64, seed) for seed in range(20)]
    expected = [evaluator(*batch) for batch in batches]
    for repeat in range(5):
        pending = [evaluator.submit(*batches[0])]
        for number in range(1, 20):
            pending.append(evaluator.submit(*batches[number]))
            result = pending.pop(0).result()
            np.testing.assert_array_equal(result.wdl, expected[number - 1].wdl, err_msg=f"{repeat}")
            np.testing.assert_array_equal(result.legal_logits, expected[number - 1].legal_logits)
        pending.pop().result()


@pytest.mark.parametrize("network", [chess_network, attention_network])
@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_the_graph_takes_new_weights_in_place(where, network):
    old, new, arrays = network(4), network(5), positions("chess", 64)
    evaluator = make(old)
    assert isinstance(evaluator.runner, CudaRunner)
    graph, before = evaluator.runner.graph, evaluator(*arrays)
    pending = evaluator.submit(*arrays)
    evaluator.load({name: tensor.to(where) for name, tensor in new.state_dict().items()})
    after = evaluator(*arrays)
    np.testing.assert_array_equal(pending.result().wdl, before.wdl)
    np.testing.assert_array_equal(after.wdl, make(new)(*arrays).wdl)
    assert evaluator.runner.graph is graph


@pytest.mark.parametrize("network", [chess_network, attention_network])
def test_a_batch_allocates_nothing_on_the_device(network):
    evaluator, arrays = make(network()), positions("chess", 64)
    evaluator(*arrays)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(10):
        evaluator(*arrays)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("filters", [64, 256])
def test_fused_kernels_are_right_on_this_device(precision, filters):
    """A GPU that has none plays by PyTorch's operators; this is how that is found out."""
    config = NetworkConfig(blocks=2, filters=filters, se_ratio=8)
    assert why_not(CUDNN, config, CUDA, precision, 256) == ""
    passes = evaluation_passes(config, CUDA, 256)
    for kernels in TOWER_KERNELS:
        fault, seconds = trial(passes, precision, CUDA, kernels)
        assert fault == "" and 0 < seconds < 1
