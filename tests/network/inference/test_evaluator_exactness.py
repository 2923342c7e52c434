"""A position's evaluation is the same to the bit in any company; self-play over ranks relies on it."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from alphazero.network.inference.evaluator import NetworkEvaluator
from alphazero.network.model.precision import why_not_int8
from tests.support.network.evaluator_nets import calibrate, chosen, positions, trained_like

CPU = torch.device("cpu")
MOST = 128
SHAPES = {
    "connect4-4x32": ("connect4", {"blocks": 4, "filters": 32, "se_ratio": 0, "value_hidden": 128}),
    "connect4-5x64": ("connect4", {"blocks": 5, "filters": 64, "se_ratio": 0, "value_hidden": 128}),
    "chess-6x64-se": ("chess", {"blocks": 6, "filters": 64, "se_ratio": 8, "value_hidden": 128}),
    "chess-2x64-attention": (
        "chess",
        {"blocks": 2, "filters": 64, "se_ratio": 8, "value_hidden": 128, "policy_head": "attention"},
    ),
    "chess-2x36-attention": (
        "chess",
        {"blocks": 2, "filters": 36, "se_ratio": 4, "value_hidden": 30, "policy_head": "attention"},
    ),
    "chess-attention-2x64": (
        "chess",
        {
            **{"body": "attention", "policy_head": "attention", "blocks": 2, "filters": 64, "heads": 4},
            **{"ffn_width": 96, "smolgen_channels": 8, "smolgen_hidden": 32, "smolgen_size": 16},
            **{"embedding_width": 16, "value_hidden": 128},
        },
    ),
    "chess-attention-2x64-map": (
        "chess",
        {
            **{"body": "attention", "policy_head": "attention", "blocks": 2, "filters": 64, "heads": 4},
            **{"ffn_width": 128, "smolgen_channels": 4, "smolgen_hidden": 32, "smolgen_size": 32},
            **{"embedding": "map", "value_hidden": 128},
        },
    ),
    "connect4-attention-2x36": (
        "connect4",
        {
            **{"body": "attention", "blocks": 2, "filters": 36, "heads": 3, "ffn_width": 40},
            **{"smolgen_channels": 4, "smolgen_hidden": 24, "smolgen_size": 16, "embedding_width": 8},
            **{"activation": "relu", "ffn_activation": "swish", "value_hidden": 30},
        },
    ),
    # No multiple of what the processor's vectors hold, so that every loop has a remainder.
    "connect4-2x36-se": ("connect4", {"blocks": 2, "filters": 36, "se_ratio": 4, "value_hidden": 30}),
}


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def assert_equal_bits(evaluator: NetworkEvaluator, arrays, expected, numbers: np.ndarray) -> None:
    """The positions of these numbers, in one batch, are evaluated as in `expected`."""
    packed, legal_index, legal_offset = chosen(arrays, numbers)
    result = evaluator(packed, legal_index, legal_offset)
    legal_logits = chosen((arrays[0], expected.legal_logits, arrays[2]), numbers)[1]
    np.testing.assert_array_equal(result.wdl.view(np.uint32), expected.wdl[numbers].view(np.uint32))
    np.testing.assert_array_equal(result.legal_logits.view(np.uint32), legal_logits.view(np.uint32))


def check_shape(name: str, precision: str, batch_sizes: tuple[int, ...]) -> None:
    game, shape = SHAPES[name]
    network = trained_like(game, **shape)
    if precision == "int8" and (reason := why_not_int8(CPU, network.config.body)):
        pytest.skip(reason)
    arrays = positions(game, MOST)
    calibrate(network, arrays[0])
    rng = np.random.default_rng(1)
    expected = None
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for batch_size in batch_sizes:
            evaluator = NetworkEvaluator(network, CPU, precision, batch_size)
            expected = expected or evaluator(*arrays)
            shuffled = rng.permutation(MOST)
            # Full, elsewhere and in other company; mostly padding; alone.
            for count in (batch_size, batch_size // 3, 1):
                assert_equal_bits(evaluator, arrays, expected, shuffled[:count])
    # It must not hold because all positions look alike to the network.
    assert len(np.unique(expected.wdl[:, 0])) > MOST // 2
    assert np.median(expected.wdl.max(axis=1)) < 0.999


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("name", SHAPES)
def test_company_place_padding_and_threads_change_no_bit(name, precision):
    check_shape(name, precision, (16,))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "int8"])
@pytest.mark.parametrize("name", SHAPES)
def test_company_changes_no_bit_at_any_batch_size(name, precision):
    """One batch size for all of one run is promised; that even another changes nothing is welcome."""
    check_shape(name, precision, (16, 32, 64, 128, 7, 100))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_an_earlier_batch_left_in_the_padding_changes_no_bit(threads):
    torch.set_num_threads(threads)
    network = trained_like("chess")
    arrays = positions("chess", 16)
    fresh = NetworkEvaluator(network, CPU, "bf16", 16)
    numbers = np.arange(3)
    expected = fresh(*chosen(arrays, numbers))
    fresh(*arrays)
    after = fresh(*chosen(arrays, numbers))
    np.testing.assert_array_equal(after.wdl, expected.wdl)
    np.testing.assert_array_equal(after.legal_logits, expected.legal_logits)
