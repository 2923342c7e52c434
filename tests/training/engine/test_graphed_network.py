"""Recorded passes compute what plain ones do; where they cannot be recorded, plain ones go on and say why.

There is no GPU here: what a CUDA graph does again, these recordings do by calling the function once more.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest
import torch

from alphazero.games.registry import get_spec
from alphazero.network.inference.program import CudaRecorder
from alphazero.network.model.planes import to_device
from alphazero.network.model.resnet import AlphaZeroNet
from alphazero.settings.load import load_config
from alphazero.settings.sections import LossConfig, NetworkConfig, TrainingConfig
from alphazero.training.engine.graphed_network import graph_notices, why_no_graphs
from alphazero.training.engine.probe import random_batch
from alphazero.training.engine.training_module import TrainingModule
from tests.support.training.calling_again import CallingAgain

SPEC = get_spec("connect4")
CPU = torch.device("cpu")


class Pair:
    """The same module twice, once with recorded passes."""

    def __init__(self, fail: Callable[[], None] = lambda: None, **changes: object) -> None:
        config = NetworkConfig(game="connect4", blocks=2, filters=16, se_ratio=4, moves_left=True)
        network = AlphaZeroNet(config, SPEC, torch.Generator().manual_seed(0)).train()
        training = TrainingConfig(**changes)
        self.plain = TrainingModule(network, LossConfig(), training)
        self.recorded = TrainingModule(copy.deepcopy(network), LossConfig(), training)
        self.recorder = CallingAgain(fail)
        self.said: list[str] = []
        self.recorded.use_graphs(self.recorder, self.said.append)

    def pass_on(self, size: int, weight: float = 1.0) -> None:
        """Forward and backward of both; outputs are equal to the bit."""
        batch = to_device(random_batch(SPEC, size), CPU)
        losses = []
        for module in (self.plain, self.recorded):
            loss = module(batch)
            (loss * weight).backward()
            losses.append(loss)
        assert torch.equal(*losses)
        assert torch.equal(self.plain.last_terms.sums, self.recorded.last_terms.sums)

    def step(self) -> None:
        """As DeepSpeed ends a step: weights move, gradients are taken away."""
        for module in (self.plain, self.recorded):
            for parameter in module.parameters():
                parameter.data.sub_(0.1 * parameter.grad)
                parameter.grad = None

    def require_equal(self) -> None:
        """Gradients, weights and BatchNorm's statistics."""
        pairs = zip(self.plain.named_parameters(), self.recorded.named_parameters(), strict=True)
        for (name, plain), (_, recorded) in pairs:
            assert torch.equal(plain, recorded), name
            assert (plain.grad is None) == (recorded.grad is None), name
            assert plain.grad is None or torch.equal(plain.grad, recorded.grad), name
        for (name, plain), (_, recorded) in zip(
            self.plain.named_buffers(), self.recorded.named_buffers(), strict=True
        ):
            assert name.endswith("num_batches_tracked") or torch.equal(plain, recorded), name


@pytest.fixture(autouse=True)
def one_momentum(monkeypatch):
    """As RunningStatistics has it: a pass leaves its own statistics and nothing of the passes before."""
    original = torch.nn.BatchNorm2d.__init__

    def with_momentum_1(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.momentum = 1.0

    monkeypatch.setattr(torch.nn.BatchNorm2d, "__init__", with_momentum_1)


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors: more threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_steps_of_several_passes_have_the_same_gradients_to_the_bit(precision):
    pair = Pair(precision=precision)
    for _ in range(3):
        for weight in (1.0, 0.5, 0.0):
            pair.pass_on(6, weight)
        pair.require_equal()
        pair.step()
    pair.require_equal()
    assert (pair.recorder.warm_ups, pair.recorder.recordings, pair.recorder.replays) == (1, 2, 18)
    assert pair.said == []


def test_another_number_of_positions_is_recorded_anew_and_a_step_that_was_given_up_leaves_nothing():
    pair = Pair()
    pair.pass_on(6)
    for module in (pair.plain, pair.recorded):  # out of memory on another rank
        for parameter in module.parameters():
            parameter.grad = None
    for _ in range(2):
        pair.pass_on(3)
    pair.require_equal()
    assert pair.recorder.recordings == 4


def test_gradients_that_are_there_are_added_to_whoever_made_them():
    pair = Pair()
    for module in (pair.plain, pair.recorded):
        for number, parameter in enumerate(module.parameters()):
            parameter.grad = torch.full_like(parameter, 0.5) if number % 2 else None
    for size in (3, 3, 4, 4):
        pair.pass_on(size)
    pair.require_equal()


def test_gradients_that_are_taken_away_after_each_pass_are_handed_out_without_a_copy():
    pair = Pair()
    places = []
    for _ in range(2):
        pair.pass_on(4)
        pair.require_equal()
        places.append([parameter.grad.data_ptr() for parameter in pair.recorded.parameters()])
        pair.step()
    assert places[0] == places[1]


def test_a_pass_without_gradients_is_not_recorded():
    pair = Pair()
    with torch.no_grad():
        pair.recorded(to_device(random_batch(SPEC, 4), CPU))
    assert pair.recorder.recordings == 0


def test_what_cannot_be_recorded_runs_as_it_is_and_the_reason_is_said_once():
    def fail() -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    pair = Pair(fail)
    for _ in range(2):
        for _ in range(2):
            pair.pass_on(4)
        pair.require_equal()
        pair.step()
    assert len(pair.said) == 1 and "stream is capturing" in pair.said[0]
    assert not pair.recorded.last_pass_was_graphed


def test_whether_a_pass_was_replayed_is_known_of_the_last_one():
    pair = Pair()
    pair.pass_on(4)
    assert pair.recorded.last_pass_was_graphed and not pair.plain.last_pass_was_graphed
    with torch.no_grad():
        pair.recorded(to_device(random_batch(SPEC, 4), CPU))
    assert not pair.recorded.last_pass_was_graphed


def test_somebody_who_waits_for_each_gradient_is_not_passed_over():
    for register in ("register_hook", "register_post_accumulate_grad_hook"):
        pair = Pair()
        seen = []
        getattr(next(pair.recorded.parameters()), register)(lambda tensor, seen=seen: seen.append(0))
        pair.pass_on(4)
        assert seen == [0]
        assert len(pair.said) == 1 and "hooks wait" in pair.said[0]


@pytest.mark.parametrize(
    "memory",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_too_little_memory_is_an_error_of_memory_also_where_the_end_of_a_recording_fails(memory):
    def fail() -> None:
        try:
            raise memory
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    pair = Pair(fail)
    with pytest.raises(type(memory)) as caught:
        pair.pass_on(4)
    assert caught.value is memory
    pair.recorder._fail = lambda: None  # smaller micro-batches fit
    for parameter in pair.plain.parameters():
        parameter.grad = None
    pair.pass_on(2)
    pair.require_equal()
    assert pair.said == []


class FakeCuda:
    """What CudaRecorder asks of torch.cuda, on a machine without it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
        self.stream, self.pools, self.modes = "training's", 0, []
        self.fails = fails
        for name in ("Stream", "CUDAGraph", "graph_pool_handle", "current_stream", "set_stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "graph", self.graph)

    def Stream(self, device: torch.device) -> MagicMock:  # noqa: N802
        return MagicMock()

    def CUDAGraph(self) -> MagicMock:  # noqa: N802
        return MagicMock()

    def graph_pool_handle(self) -> int:
        self.pools += 1
        return self.pools

    def current_stream(self, device: torch.device) -> MagicMock:
        return MagicMock(name=self.stream, own=self.stream)

    def set_stream(self, stream: MagicMock) -> None:
        self.stream = stream.own

    @contextlib.contextmanager
    def graph(self, graph: MagicMock, pool: int, stream: MagicMock, capture_error_mode: str):
        self.stream = "the recording's"
        self.modes.append((pool, capture_error_mode))
        yield
        if self.fails:
            raise RuntimeError("capture failed")  # and the stream stays, as in torch 2.13
        self.stream = "training's"


@pytest.mark.parametrize("fails", [False, True])
def test_a_recording_lets_other_threads_work_and_gives_the_stream_back(monkeypatch, fails):
    cuda = FakeCuda(monkeypatch, fails=fails)
    recorder = CudaRecorder(torch.device("cuda", 0))
    done: list[int] = []
    recorder.warm_up(lambda: done.append(0))
    assert len(done) == 3
    with pytest.raises(RuntimeError, match="capture failed") if fails else contextlib.nullcontext():
        recorder.record(lambda: done.append(1))()
    assert done == [0, 0, 0, 1]
    assert cuda.stream == "training's"
    recorder.warm_up(lambda: None)
    with contextlib.suppress(RuntimeError):
        recorder.record(lambda: None)
    # Another recording has memory of its own.
    assert cuda.modes == [(2, "thread_local"), (3, "thread_local")]


TAKEN = "CUDA graphs off: DeepSpeed takes each gradient as it is made ({})"


@pytest.mark.parametrize(
    ("flags", "deepspeed", "told"),
    [
        ({}, {}, ["CUDA graphs on"]),
        ({"zero_stage": 1}, {}, ["CUDA graphs on"]),
        ({}, {"passed_on": {"flops_profiler": {"enabled": False}}}, ["CUDA graphs on"]),
        ({"zero_stage": 2}, {}, ["CUDA graphs on"]),
        (
            {"zero_stage": 2},
            {"zero_options": {"reduce_bucket_size": 9}},
            [TAKEN.format("ZeRO 2 with a reduce_bucket_size of 9 for 584,580 parameters")],
        ),
        ({"zero_stage": 2}, {"zero_options": {"overlap_comm": True}}, [TAKEN.format("overlap_comm")]),
        ({"zero_stage": 3}, {}, ["CUDA graphs on"]),
        ({"zero_stage": 3}, {"zero_options": {"overlap_comm": False}}, ["CUDA graphs on"]),
        ({"zero_stage": 3}, {"zero_options": {"overlap_comm": True}}, [TAKEN.format("overlap_comm")]),
        (
            {"zero_stage": 3},
            {"zero_options": {"offload_param": {"device": "cpu"}}},
            [TAKEN.format("offload_param")],
        ),
        *(
            (
                {"zero_stage": 3},
                {"zero_options": {written: 9, "reduce_bucket_size": 584_580}},
                [TAKEN.format(f"ZeRO 3 with a {name} of 9 for 584,580 parameters")],
            )
            for written, name in (
                ("stage3_max_live_parameters", "stage3_max_live_parameters"),
                ("max_live_parameters", "stage3_max_live_parameters"),
                ("stage3_max_reuse_distance", "stage3_max_reuse_distance"),
            )
        ),
        (
            {"zero_stage": 3},
            {"zero_options": {"reduce_bucket_size": 584_579}},
            [TAKEN.format("ZeRO 3 with a reduce_bucket_size of 584,579 for 584,580 parameters")],
        ),
        ({"zero_stage": 2}, {"zero_options": {"stage3_max_live_parameters": 9}}, ["CUDA graphs on"]),
        (
            {"zero_stage": 1},
            {"zero_options": {"offload_optimizer": {"device": "cpu"}}},
            [TAKEN.format("offload_optimizer")],
        ),
        (
            {},
            {"passed_on": {"flops_profiler": {"enabled": True}}},
            ["CUDA graphs off: flops_profiler counts operations as they are called"],
        ),
        ({"cuda_graphs": False}, {}, []),
    ],
)
def test_settings_that_recorded_passes_do_not_go_with_are_named(flags, deepspeed, told):
    config = load_config("connect4", flags)
    config = dataclasses.replace(config, deepspeed=dataclasses.replace(config.deepspeed, **deepspeed))
    assert graph_notices(config, torch.device("cuda")) == told
    assert graph_notices(config, CPU) == []
    assert (not why_no_graphs(config)) == (told == ["CUDA graphs on"])
