"""Fused convolutions of cuDNN, by stand-ins for its two operators, and the choice of kernels."""

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from alphazero.network.inference import kernels
from alphazero.network.inference.forward import ModuleForward, fold_tensors
from alphazero.network.inference.kernels import CUDNN, OPERATORS, CudnnForward, kernels_for, why_not
from alphazero.network.model.planes import expand_planes
from alphazero.settings.sections import NetworkConfig
from tests.support.network.evaluator_nets import calibrate, positions, trained_like

CPU = torch.device("cpu")


class Cudnn:
    """torch's two operators as cuDNN documents them: max(0, convolution + alpha * addend + bias).

    Computed in fp32 and rounded once, channels last in and out, on memory of their own. calls: with an
    addend or without one.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []

    def relu(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Tensor:
        self.calls.append("relu")
        return self._compute(input, weight, None, 0.0, bias, stride, padding, dilation, groups)

    def add_relu(
        self,
        input: Tensor,
        weight: Tensor,
        z: Tensor,
        alpha: float | None,
        bias: Tensor | None,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Tensor:
        self.calls.append("add_relu")
        alpha = 1.0 if alpha is None else alpha
        return self._compute(input, weight, z, alpha, bias, stride, padding, dilation, groups)

    def _compute(self, input, weight, z, alpha, bias, stride, padding, dilation, groups) -> Tensor:
        for tensor in (input, weight) if z is None else (input, weight, z):
            assert tensor.is_contiguous(memory_format=torch.channels_last), "a copy would be made"
            assert tensor.dtype is input.dtype
        assert input.shape[1] == weight.shape[1] * groups
        sums = functional.conv2d(input.float(), weight.float(), None, stride, padding, dilation, groups)
        if z is not None:
            assert z.shape == sums.shape
            sums = sums + alpha * z.float()
        if bias is not None:
            assert bias.shape == sums.shape[1:2] and bias.dtype is input.dtype
            sums = sums + bias.float()[:, None, None]
        return sums.clamp(min=0).to(input.dtype, memory_format=torch.channels_last)


@contextlib.contextmanager
def played_by(relu: Callable[..., Tensor], add_relu: Callable[..., Tensor]) -> Iterator[None]:
    replaced = {"cudnn_convolution_relu": relu, "cudnn_convolution_add_relu": add_relu}
    with mock.patch.multiple(torch, **replaced):
        yield


@pytest.fixture
def cudnn() -> Iterator[Cudnn]:
    stand_in = Cudnn()
    with played_by(stand_in.relu, stand_in.add_relu):
        yield stand_in


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    why_not.cache_clear()
    yield
    why_not.cache_clear()
    kernels.use_kernels("")


def planes_of(network, count: int = 5) -> Tensor:
    packed = torch.from_numpy(positions(network.config.game, count)[0])
    return expand_planes(packed, network.spec)


@pytest.mark.parametrize(
    ("game", "se_ratio", "calls"),
    [
        # Input, two in each of two blocks, the hidden layers of both heads.
        ("chess", 0, ["relu", "relu", "add_relu", "relu", "add_relu", "relu", "relu"]),
        ("chess", 4, ["relu", "relu", "relu", "relu", "relu"]),
        # So few planes are not for cuDNN's fused kernels.
        ("connect4", 0, ["relu", "add_relu", "relu", "add_relu", "relu", "relu"]),
    ],
)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_the_fused_pass_computes_what_the_operators_compute(cudnn, game, se_ratio, calls, dtype, bound):
    network = trained_like(game, blocks=2, filters=16, se_ratio=se_ratio, value_channels=8)
    calibrate(network, positions(game, 64)[0])
    planes = planes_of(network).to(dtype)
    with torch.inference_mode():
        expected = ModuleForward(network, CPU, dtype)(planes)
        found = CudnnForward(network, CPU, dtype)(planes)
    assert cudnn.calls == calls
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=bound, atol=bound)
        assert one.is_contiguous()


def test_new_weights_are_taken_in_place(cudnn):
    old, new = (trained_like("chess", seed, filters=16, se_ratio=0, value_channels=8) for seed in (1, 2))
    forward, planes = CudnnForward(old, CPU, torch.float32), planes_of(old)
    places = [parameter.data_ptr() for parameter in forward.network.parameters()]
    forward.load(fold_tensors(new.state_dict()))
    assert [parameter.data_ptr() for parameter in forward.network.parameters()] == places
    with torch.inference_mode():
        expected = CudnnForward(new, CPU, torch.float32)(planes)
        for one, other in zip(forward(planes), expected, strict=True):
            assert torch.equal(one, other)


SHAPE = NetworkConfig(blocks=2, filters=16, value_channels=8, value_hidden=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("game", ["chess", "connect4"])
def test_kernels_that_are_right_are_taken(cudnn, game, dtype):
    network = trained_like(game, filters=16, se_ratio=0, value_channels=8)
    assert why_not(CUDNN, network.config, CPU, dtype, 8) == ""
    assert kernels_for(network, CPU, dtype, 8) == CUDNN


def wrong(change: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The two operators with a mistake."""
    right = Cudnn()

    def add_relu(input, weight, z, alpha, bias, *rest):
        if change == "alpha is ignored":
            alpha = 0.0
        if change == "the bias is ignored":
            bias = None
        if change == "no ReLU":
            return functional.conv2d(input, weight, bias, *rest) + z
        if change == "other bits each time":
            return right.add_relu(input, weight, z, alpha, bias, *rest) + torch.rand(()) * 1e-6
        return right.add_relu(input, weight, z, alpha, bias, *rest)

    def relu(input, weight, bias, *rest):
        if change == "no engine":
            raise RuntimeError("GET was unable to find an engine to execute this computation\nmore")
        return right.relu(input, weight, None if change == "the bias is ignored" else bias, *rest)

    return relu, add_relu


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("alpha is ignored", "their error is "),
        ("the bias is ignored", "their error is "),
        ("no ReLU", "their error is "),
        ("other bits each time", "they gave other bits the second time"),
        ("no engine", "RuntimeError: GET was unable to find an engine to execute this computation"),
    ],
)
def test_kernels_that_are_wrong_are_left_for_the_operators_and_the_reason_is_known(change, reason):
    network = trained_like("chess", filters=16, se_ratio=0, value_channels=8)
    with played_by(*wrong(change)):
        assert why_not(CUDNN, network.config, CPU, torch.float32, 8).startswith(reason)
        assert kernels_for(network, CPU, torch.float32, 8) == OPERATORS


def test_a_torch_without_cudnn_has_the_operators():
    reason = why_not(CUDNN, SHAPE, CPU, torch.float32, 8)
    assert "cuDNN" in reason or "CUDA" in reason
    assert why_not(OPERATORS, SHAPE, CPU, torch.float32, 8) == ""


def test_too_little_memory_is_no_answer_to_the_question():
    def full(*args):
        raise RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")

    with played_by(full, full), pytest.raises(RuntimeError, match="ALLOCATION_FAILED"):
        why_not(CUDNN, SHAPE, CPU, torch.float32, 8)


def test_a_choice_that_was_made_for_the_process_holds_for_all_evaluators(cudnn):
    network = trained_like("chess", filters=16, se_ratio=0, value_channels=8)
    for chosen in (OPERATORS, CUDNN):
        kernels.use_kernels(chosen)
        assert kernels_for(network, CPU, torch.float32, 8) == chosen
    assert cudnn.calls == []


def test_trying_kernels_leaves_torch_s_generator_alone(cudnn):
    before = torch.get_rng_state()
    why_not(CUDNN, SHAPE, CPU, torch.float32, 8)
    assert torch.equal(torch.get_rng_state(), before)


def test_attention_bodies_have_the_operators(cudnn):
    body = {"body": "attention", "policy_head": "attention", "heads": 2, "ffn_width": 32}
    network = trained_like("chess", blocks=1, filters=16, smolgen_channels=0, **body)
    assert kernels_for(network, CPU, torch.float32, 8) == OPERATORS
    assert cudnn.calls == []
