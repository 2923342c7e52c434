"""Parts of the evaluator: planes, forward passes, folding, the CUDA runner's order of work."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

from alphazero.games.registry import get_spec
from alphazero.network.inference.forward import ModuleForward, fold_batch_norm, fold_tensors
from alphazero.network.inference.onednn import OneDnnForward
from alphazero.network.inference.program import (
    WARM_UP_RUNS,
    BatchBuffers,
    BatchProgram,
    CudaRunner,
    PlaneExpander,
    Runner,
    cudnn_by_rule,
    policy_places,
)
from alphazero.network.model.planes import expand_planes
from tests.support.network.evaluator_nets import calibrate, positions, trained_like

CPU = torch.device("cpu")
GAMES = ("chess", "connect4", "tictactoe")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("game", GAMES)
def test_the_expander_makes_the_planes_of_expand_planes(game, dtype):
    spec = get_spec(game)
    expand = PlaneExpander(spec, 5, CPU, dtype)
    for seed in (1, 2):  # the buffers of the first are used by the second
        packed_BN = torch.from_numpy(positions(game, 5, seed)[0])
        planes_BCHW = expand(packed_BN)
        assert torch.equal(planes_BCHW, expand_planes(packed_BN, spec).to(dtype))
        assert planes_BCHW.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("se_ratio", [0, 4])
@pytest.mark.parametrize(
    ("game", "policy_head"), [*((game, "convolution") for game in GAMES), ("chess", "attention")]
)
def test_the_fused_forward_pass_equals_the_modules(game, policy_head, se_ratio):
    network = trained_like(game, se_ratio=se_ratio, value_hidden=24, policy_head=policy_head)
    packed = positions(game, 6)[0]
    calibrate(network, packed)
    planes_BCHW = expand_planes(torch.from_numpy(packed), network.spec)
    with torch.inference_mode():
        fused = OneDnnForward(network, torch.float32, 6)(planes_BCHW)
        modules = ModuleForward(network, CPU, torch.float32)(planes_BCHW)
        whole = network.eval()(planes_BCHW)
    for one, other in zip(fused, modules, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    size, places = policy_places(network.config, network.spec)
    assert fused[0].shape == (6, size)
    torch.testing.assert_close(modules[0][:, list(places)], whole.policy_BA, rtol=1e-4, atol=1e-4)


def test_folding_leaves_no_batch_norm():
    folded = fold_batch_norm(trained_like("chess"))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())


def test_folded_tensors_are_those_of_the_folded_network():
    network = trained_like("chess", moves_left=True)
    wanted = {
        name: tensor
        for name, tensor in fold_batch_norm(network).state_dict().items()
        if not name.startswith("moves_left.")
    }
    folded = fold_tensors(network.state_dict())
    assert set(folded) == set(wanted)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in folded.items())


def test_new_weights_of_the_modules_stay_where_the_old_ones_were():
    forward = ModuleForward(trained_like("chess", seed=1), CPU, torch.bfloat16)
    new = trained_like("chess", seed=2)
    before = {name: tensor.data_ptr() for name, tensor in forward.network.named_parameters()}
    forward.load(fold_tensors(new.state_dict()))
    wanted = ModuleForward(new, CPU, torch.bfloat16).network.state_dict()
    for name, tensor in forward.network.named_parameters():
        assert tensor.data_ptr() == before[name]
        assert torch.equal(tensor, wanted[name])


def make_program(batch_size: int = 4) -> BatchProgram:
    network = trained_like("connect4")
    forward = OneDnnForward(network, torch.float32, batch_size)
    return BatchProgram(
        forward, policy_places(network.config, network.spec), network.spec, batch_size, CPU, torch.float32
    )


def test_moves_beyond_the_last_do_not_touch_those_before():
    """What a captured graph does: it always gathers for as many moves as there can be."""
    program = make_program()
    buffers = BatchBuffers(program, pinned=False)
    buffers.fill(*positions("connect4", 3))
    Runner(program).enqueue(buffers)
    logits_M, wdl_B3 = buffers.logits_M.clone(), buffers.wdl_B3.clone()
    program.run(program.max_moves)
    buffers.fetch()
    assert torch.equal(buffers.logits_M[: buffers.num_moves], logits_M[: buffers.num_moves])
    assert torch.equal(buffers.wdl_B3[:3], wdl_B3[:3])


class FakeStream:
    """A stream that says who waited for whom."""

    def __init__(self, log: list[str], device: torch.device) -> None:
        self.log, self.device = log, device

    def wait_stream(self, other: "FakeStream") -> None:
        self.log.append("wait")

    def synchronize(self) -> None:
        self.log.append("synchronize")


class FakeGraph:
    """What is run between begin and end of the capture, run again by replay."""

    def __init__(self, log: list[str], program: BatchProgram) -> None:
        self.log, self.program = log, program

    def replay(self) -> None:
        self.log.append("replay")
        with cudnn_by_rule():  # as it was captured
            self.program.run(self.program.max_moves)


@pytest.fixture
def cuda_log(monkeypatch) -> tuple[list[str], BatchProgram]:
    """torch.cuda as a log of what is asked of it; `run` of the program is in it too."""
    log: list[str] = []
    program = make_program()
    run = program.run

    def logged_run(num_moves: int) -> None:
        assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (False, True)
        log.append(f"run {num_moves}")
        run(num_moves)

    @contextlib.contextmanager
    def capture(graph, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"  # a checkpoint may be written meanwhile
        log.append("capture")
        yield
        log.append("captured")

    # As training sets them.
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(program, "run", logged_run)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(log, device))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(log, device))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: FakeGraph(log, program))
    monkeypatch.setattr(torch.cuda, "graph", capture)
    return log, program


def test_the_cuda_runner_captures_once_and_then_replays(cuda_log):
    log, program = cuda_log
    runner = CudaRunner(program, CPU)
    warm_up = [f"run {program.max_moves}"] * WARM_UP_RUNS
    whole = f"run {program.max_moves}"
    assert log == ["wait", *warm_up, "synchronize", "capture", whole, "captured"]
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (True, False)
    assert runner.description.endswith(", as a CUDA graph")
    for seed in (1, 2):
        log.clear()
        buffers = BatchBuffers(program, pinned=False)
        buffers.fill(*positions("connect4", 3, seed))
        runner.enqueue(buffers)
        assert log == ["replay", whole]
        other = BatchBuffers(make_program(), pinned=False)
        other.fill(*positions("connect4", 3, seed))
        Runner(other.program).enqueue(other)
        assert torch.equal(buffers.logits_M[: buffers.num_moves], other.logits_M[: buffers.num_moves])
        assert torch.equal(buffers.wdl_B3[:3], other.wdl_B3[:3])


def test_the_cuda_runner_takes_weights_in_stream_order(cuda_log):
    log, program = cuda_log
    runner = CudaRunner(program, CPU)
    log.clear()
    runner.load(fold_tensors(trained_like("connect4", seed=5).state_dict()))
    assert log == ["wait", "wait"]  # for the caller's tensors; the caller until they are read


def test_where_no_graph_can_be_captured_the_runner_says_why(cuda_log, monkeypatch):
    log, program = cuda_log

    @contextlib.contextmanager
    def no_capture(graph, stream, capture_error_mode):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")
        yield

    monkeypatch.setattr(torch.cuda, "graph", no_capture)
    runner = CudaRunner(program, CPU)
    assert runner.description.endswith(
        ", without CUDA graph: operation not permitted when stream is capturing"
    )
    log.clear()
    buffers = BatchBuffers(program, pinned=False)
    buffers.fill(*positions("connect4", 3))
    runner.enqueue(buffers)
    assert log == [f"run {buffers.num_moves}"]
    assert np.isfinite(buffers.wdl_B3[:3].numpy()).all()
