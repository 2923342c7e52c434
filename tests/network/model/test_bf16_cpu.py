"""The core's bf16 functions against torch's in double precision: outputs, gradients, statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import alphazero._core as _core
from alphazero.games.registry import get_spec
from alphazero.network.model import layers as batch_norm
from alphazero.network.model import layers as squeeze_excitation
from alphazero.network.model.heads import ConvNorm
from alphazero.network.model.layers import BatchNorm, Convolution, SqueezeExcitation, is_fused
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.sections import NetworkConfig

# A bf16 number has 8 bits: half a unit in the last place.
ROUNDING = 2.0**-8


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _numbers(*shape: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=generator) * scale + shift
    return numbers.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)


def _norm(channels: int) -> BatchNorm:
    norm = BatchNorm(channels)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(channels, generator=generator))
        norm.bias.copy_(torch.randn(channels, generator=generator))
    return norm.train()


def _gradients(function: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [
        tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_() for tensor in inputs
    ]
    function(*leaves).backward(upstream.to(leaves[0].dtype))
    gradients = [leaf.grad for leaf in leaves]
    assert all(gradient is not None for gradient in gradients)
    return [gradient.double() for gradient in gradients if gradient is not None]


def _assert_near(found: Tensor, expected: Tensor, tolerance: float = 2 * ROUNDING) -> None:
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error < tolerance, error


@pytest.mark.parametrize("rectifies", [False, True])
@pytest.mark.parametrize(("positions", "channels"), [(16, 64), (3, 5), (1, 1), (40, 20)])
def test_batch_norm_is_torchs_in_double_precision(positions: int, channels: int, rectifies: bool) -> None:
    input_BCHW = _numbers(positions, channels, 8, 8, seed=1, scale=3, shift=2)
    upstream = _numbers(positions, channels, 8, 8, seed=2)
    norm = _norm(channels)
    exact = _norm(channels).double()

    def reference(tensor: Tensor) -> Tensor:
        normed: Tensor = exact(tensor)
        return functional.relu(normed) if rectifies else normed

    def fused(tensor: Tensor) -> Tensor:
        return norm(tensor, rectifies=rectifies)  # type: ignore[no-any-return]

    _assert_near(fused(input_BCHW), reference(input_BCHW.double()))
    norm, exact = _norm(channels), _norm(channels).double()
    (found,) = _gradients(fused, [input_BCHW], upstream)
    (expected,) = _gradients(reference, [input_BCHW.double()], upstream)
    _assert_near(found, expected)
    assert norm.weight.grad is not None and norm.bias.grad is not None
    assert exact.weight.grad is not None and exact.bias.grad is not None
    _assert_near(norm.weight.grad, exact.weight.grad)
    _assert_near(norm.bias.grad, exact.bias.grad)
    assert norm.running_mean is not None and norm.running_var is not None
    torch.testing.assert_close(norm.running_mean.double(), exact.running_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.running_var.double(), exact.running_var, rtol=1e-5, atol=1e-6)


def test_a_variance_far_below_the_mean_is_not_lost() -> None:
    # Of 256 and 258 in equal parts the mean is 257 and the variance 1: squares of 66,000 would drown it.
    input_BCHW = torch.full((8, 2, 8, 8), 256.0)
    input_BCHW[:, :, ::2] = 258.0
    narrow = input_BCHW.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    norm = BatchNorm(2).train()
    norm.momentum = 1.0
    found = norm(narrow)
    assert found[:, :, ::2].eq(1).all() and found[:, :, 1::2].eq(-1).all()
    assert norm.running_mean is not None and norm.running_mean.eq(257).all()
    torch.testing.assert_close(norm.running_var, torch.full((2,), 512 / 511))


def test_excited_residual_is_torchs_in_double_precision() -> None:
    skip, branch = _numbers(6, 32, 8, 8, seed=3), _numbers(6, 32, 8, 8, seed=4, scale=2)
    upstream = _numbers(6, 32, 8, 8, seed=5)
    torch.manual_seed(6)
    module = SqueezeExcitation(32, 4)
    exact = SqueezeExcitation(32, 4).double()
    exact.load_state_dict(module.state_dict())

    def fused(skip: Tensor, branch: Tensor) -> Tensor:
        return module.added_to(skip, branch)

    def reference(skip: Tensor, branch: Tensor) -> Tensor:
        return functional.relu(skip + exact(branch))

    _assert_near(fused(skip, branch), reference(skip.double(), branch.double()))
    module.zero_grad()
    exact.zero_grad()
    found = _gradients(fused, [skip, branch], upstream)
    expected = _gradients(reference, [skip.double(), branch.double()], upstream)
    for one, other in zip(found, expected, strict=True):
        _assert_near(one, other)
    for (name, one), other in zip(module.named_parameters(), exact.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None, name
        # Where relu cuts is decided on the rounded output.
        _assert_near(one.grad, other.grad, 4 * ROUNDING)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_numbers_reach_output_and_gradient(bad: float) -> None:
    input_BCHW = _numbers(2, 3, 8, 8, seed=7)
    input_BCHW[0, 1, 2, 3] = bad
    input_BCHW.requires_grad_()
    output = _norm(3)(input_BCHW, rectifies=True)
    assert not output[:, 1].isfinite().any() and output[:, [0, 2]].isfinite().all()
    output.float().sum().backward()
    assert input_BCHW.grad is not None
    assert not input_BCHW.grad[:, 1].isfinite().any() and input_BCHW.grad[:, 0].isfinite().all()


def test_fp32_several_threads_and_other_layouts_stay_torchs() -> None:
    fitting, weight = _numbers(2, 4, 8, 8, seed=8), torch.ones(4)
    assert is_fused(fitting, weight)
    assert not is_fused(fitting.float(), weight)
    assert not is_fused(fitting, weight.to(torch.bfloat16))
    assert not is_fused(fitting.contiguous(), weight)
    torch.set_num_threads(2)
    assert not is_fused(fitting, weight)


def test_a_training_pass_uses_them_and_stays_as_near_to_fp32_as_torchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = NetworkConfig(game="chess", blocks=2, filters=16, se_ratio=4)
    network = AlphaZeroNet(config, get_spec("chess"), torch.Generator().manual_seed(1))
    network = network.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    planes = torch.randn(8, 112, 8, 8, generator=torch.Generator().manual_seed(2))
    planes = planes.contiguous(memory_format=torch.channels_last)
    calls: list[bool] = []

    def watched(tensor: Tensor, weight: Tensor) -> bool:
        calls.append(is_fused(tensor, weight))
        return calls[-1]

    for module in (batch_norm, squeeze_excitation):
        monkeypatch.setattr(module, "is_fused", watched)

    def gradients(dtype: torch.dtype | None) -> Tensor:
        network.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            output = network(planes)
        loss = output.policy_BA.float().square().mean() + output.wdl_B3.float().square().mean()
        loss.backward()
        return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])

    exact = gradients(None)
    assert calls and not any(calls)
    calls.clear()
    ours = gradients(torch.bfloat16)
    assert calls and all(calls)
    for module in (batch_norm, squeeze_excitation):
        monkeypatch.setattr(module, "is_fused", lambda tensor, weight: False)
    plain = gradients(torch.bfloat16)
    assert (ours - exact).norm() < 1.2 * (plain - exact).norm()


def test_evaluation_does_not_use_them() -> None:
    pair = ConvNorm(4, 4, 3).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = pair.state_dict()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pair(_numbers(2, 4, 8, 8, seed=1), rectifies=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in pair.state_dict().items())


needs_weight_gradient = pytest.mark.skipif(
    not _core.has_weight_gradient(), reason="this CPU has no AVX512_BF16, or has AMX"
)


@needs_weight_gradient
@pytest.mark.parametrize(
    ("positions", "inputs", "outputs", "height", "width"),
    [
        (9, 64, 64, 8, 8),
        (8, 64, 64, 6, 7),
        (1, 1, 64, 3, 3),
        (3, 13, 128, 1, 5),
        (17, 8, 64, 8, 2),
        (2, 6, 64, 1, 1),
    ],
)
def test_gradient_of_weights_is_torchs_in_double_precision(
    positions: int, inputs: int, outputs: int, height: int, width: int
) -> None:
    """Whole tiles and what is left over, pairs of positions and a single one, boards of one row or square."""
    input_BIHW = _numbers(positions, inputs, height, width, seed=1, shift=0.5)
    upstream = _numbers(positions, outputs, height, width, seed=2)
    layer = Convolution(inputs, outputs, 3).train()
    exact = Convolution(inputs, outputs, 3).double()
    exact.load_state_dict({"weight": layer.weight.detach().to(torch.bfloat16).double()})
    (found,) = _gradients(layer, [input_BIHW], upstream)
    (expected,) = _gradients(exact, [input_BIHW.double()], upstream)
    _assert_near(found, expected)
    assert layer.weight.grad is not None and exact.weight.grad is not None
    # Sums in fp32, of products that are exact there: nothing is rounded to bf16.
    _assert_near(layer.weight.grad, exact.weight.grad, 1e-5)


@needs_weight_gradient
def test_arrays_that_do_not_fit_are_refused() -> None:
    def gradient(*shapes: tuple[int, ...]) -> None:
        input_BHWI, upstream_BHWO = (np.zeros(shape, np.uint16) for shape in shapes[:2])
        _core.weight_gradient(input_BHWI, upstream_BHWO, np.zeros(shapes[2], np.float32))

    gradient((2, 8, 8, 5), (2, 8, 8, 64), (64, 3, 3, 5))
    for unfit in (
        ((2, 8, 8, 5), (3, 8, 8, 64), (64, 3, 3, 5)),
        ((2, 8, 8, 5), (2, 8, 7, 64), (64, 3, 3, 5)),
        ((2, 8, 8, 5), (2, 8, 8, 65), (65, 3, 3, 5)),
        ((2, 8, 8, 5), (2, 8, 8, 64), (64, 3, 3, 6)),
        ((2, 0, 8, 5), (2, 0, 8, 64), (64, 3, 3, 5)),
    ):
        with pytest.raises(ValueError, match="shapes"):
            gradient(*unfit)


@needs_weight_gradient
@pytest.mark.parametrize("outputs", [64, 65])
def test_other_layers_keep_torchs_gradient(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's is used for whole tiles of outputs in training, with one thread, on bf16."""
    calls: list[object] = []
    original = _core.weight_gradient
    monkeypatch.setattr(_core, "weight_gradient", lambda *given: (calls.append(given), original(*given)))
    layer = Convolution(64, outputs, 3).train()
    planes = _numbers(4, 64, 8, 8, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        layer(planes).sum().backward()
    assert len(calls) == (outputs == 64)
    with torch.autocast("cpu", torch.bfloat16):
        layer.eval()(planes).sum().backward()
    layer.train()(planes.float()).sum().backward()
    torch.set_num_threads(2)
    with torch.autocast("cpu", torch.bfloat16):
        layer(planes).sum().backward()
    assert len(calls) == (outputs == 64)
