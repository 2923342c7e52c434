"""Mish in the forms that compiled training has on a CPU, against torch's in double precision."""

import pytest
import torch
from torch.nn import functional

from alphazero.network.model.activations import SmoothMish, mish

VALUES = torch.cat([torch.linspace(-100, 100, 4001), torch.linspace(-4, 4, 4001)])


def with_slope(function, values):
    """Its values and its derivative, in double precision."""
    input = values.clone().requires_grad_()
    output = function(input)
    (slope,) = torch.autograd.grad(output.sum(), input)
    return output.double(), slope.double()


def test_mish_without_comparisons_is_torchs_with_its_derivative():
    expected, expected_slope = with_slope(functional.mish, VALUES.double())
    output, slope = with_slope(SmoothMish.apply, VALUES)
    torch.testing.assert_close(output, expected, rtol=3e-7, atol=1e-7)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-6, atol=1e-6)


def test_in_bf16_only_its_results_are_rounded():
    values = VALUES.bfloat16()
    expected, expected_slope = with_slope(functional.mish, values.double())
    output, slope = with_slope(SmoothMish.apply, values)
    torch.testing.assert_close(output, expected.bfloat16().double(), rtol=2**-8, atol=1e-7)
    torch.testing.assert_close(slope, expected_slope.bfloat16().double(), rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("trains", [True, False])
def test_it_is_compiled_for_training_alone(trains):
    seen = []

    def inspect(module, _):
        seen.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    torch.compiler.reset()
    with torch.set_grad_enabled(trains):
        torch.compile(mish, backend=inspect)(VALUES.clone().requires_grad_())
    assert any("mish" in name for name in seen) is not trains
    torch.compiler.reset()
