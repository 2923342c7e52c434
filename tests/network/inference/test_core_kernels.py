"""The core's kernels for encoders against torch's operators in double precision."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import alphazero._core as _core
from alphazero.network.inference.core_kernels import add_and_normalise, attend, mish_

# As a share of the largest number: of the last bit and of sums in another order.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-10}
DTYPES = [*TOLERANCE]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(*shape, seed=1, scale=1.0, dtype=torch.float32):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def assert_near(found, expected):
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE[found.dtype], error


def exact_attention(projected_BQX, added_BNQQ, heads):
    query, key, value = (
        part.unflatten(2, (heads, -1)).transpose(1, 2) for part in projected_BQX.double().chunk(3, dim=2)
    )
    scores_BNQQ = query @ key.transpose(2, 3)
    if len(added_BNQQ):
        scores_BNQQ = scores_BNQQ + added_BNQQ.double().transpose(2, 3)
    return (scores_BNQQ.softmax(3) @ value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_scores", [True, False])
@pytest.mark.parametrize(("squares", "heads", "width"), [(64, 4, 16), (64, 2, 40), (42, 3, 9), (1, 1, 1)])
def test_attention_is_torchs_in_double_precision(squares, heads, width, has_scores, dtype, threads):
    projected = numbers(9, squares, 3 * heads * width, dtype=dtype, scale=2.0)
    added = numbers(9 if has_scores else 0, heads, squares, squares, seed=2, scale=3.0, dtype=dtype)
    assert_near(attend(projected, added), exact_attention(projected, added, heads))


def test_scores_of_any_size_give_finite_numbers():
    projected, none = numbers(1, 64, 48, scale=1e6), torch.empty(0, 1, 64, 64)
    found = attend(projected, none)
    assert_near(found, exact_attention(projected, none, 1))


def test_a_position_that_is_no_number_spoils_no_other():
    projected, none = numbers(5, 64, 48), torch.empty(0, 4, 64, 64)
    expected = attend(projected, none)
    projected[2, 7, 3] = torch.nan
    found = attend(projected, none)
    assert found[2].isnan().any()
    assert torch.equal(found[[0, 1, 3, 4]], expected[[0, 1, 3, 4]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 15, 16, 33, 600_001])
def test_mish_is_torchs_in_double_precision(count, dtype, threads):
    values = numbers(count, scale=4.0, dtype=dtype)
    expected = functional.mish(values.double())
    assert_near(mish_(values), expected)


def test_mish_of_numbers_far_from_zero():
    values = torch.tensor([-1e30, -200.0, -50.0, -0.0, 40.0, 1e30, torch.inf, torch.nan])
    found = mish_(values.clone())
    expected = torch.tensor([0.0, 0.0, 0.0, 0.0, 40.0, 1e30, torch.inf, torch.nan])
    torch.testing.assert_close(found, expected, equal_nan=True, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "channels"), [(8192, 64), (3, 5), (7, 40), (1, 1)])
def test_the_normalised_sum_is_torchs_in_double_precision(rows, channels, dtype, threads):
    skip = numbers(rows, channels, dtype=dtype, scale=3.0)
    branch = numbers(rows, channels, seed=2, dtype=dtype) + 2
    weight, bias = numbers(channels, seed=3), numbers(channels, seed=4)
    expected = functional.layer_norm(
        skip.double() + branch.double(), (channels,), weight.double(), bias.double(), 1e-3
    )
    assert_near(add_and_normalise(skip, branch, weight, bias, 1e-3), expected)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_a_number_depends_on_its_row_alone(dtype):
    """Bits: where a row stands decides which lanes of the processor's vectors compute it."""
    skip, branch = numbers(100, 36, dtype=dtype), numbers(100, 36, seed=2, dtype=dtype)
    one = torch.ones(36)
    found = add_and_normalise(skip, branch.clone(), one, one, 1e-6)
    assert torch.equal(add_and_normalise(skip[7:12], branch[7:12].clone(), one, one, 1e-6), found[7:12])
    values = numbers(1000, dtype=dtype)
    assert torch.equal(mish_(values[13:78].clone()), mish_(values.clone())[13:78])


def test_shapes_that_do_not_fit_are_refused():
    f32 = np.float32
    output, none = np.zeros((2, 4, 6), f32), np.zeros((0, 3, 4, 4), f32)
    projected = np.zeros((2, 4, 18), f32)
    for wrong in (
        (np.zeros((2, 4, 17), f32), none, output),
        (np.zeros((1, 4, 18), f32), none, output),
        (projected, np.zeros((0, 4, 4, 4), f32), output),
        (projected, np.zeros((0, 0, 4, 4), f32), output),
        (projected, np.zeros((1, 3, 4, 4), f32), output),
        (projected, np.zeros((2, 3, 4, 5), f32), output),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            _core.attend(wrong[0], wrong[1], 1, wrong[2])
    rows, channels = np.zeros((2, 4), f32), np.zeros(4, f32)
    with pytest.raises(ValueError, match="do not fit"):
        _core.add_and_normalise(rows, channels[:3], channels, 1e-3, 1, rows.copy())
    with pytest.raises(ValueError, match="do not fit"):
        _core.add_and_normalise(rows, channels, channels, 1e-3, 1, np.zeros((1, 4), f32))
