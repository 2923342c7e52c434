"""How a CUDA graph is captured, on a machine without CUDA: torch's part is played by a stand-in."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from alphazero.network.inference.forward import ModuleForward
from alphazero.network.inference.program import BatchProgram, CudaRunner, policy_places
from alphazero.network.model.precision import DTYPES
from tests.support.network.evaluator_nets import trained_like


def test_a_capture_does_not_fail_because_another_thread_copies_a_checkpoint():
    """torch's own mode, "global", lets no thread of the process allocate meanwhile."""
    asked: dict[str, Any] = {}

    def graph(captured: object, **options: Any) -> contextlib.AbstractContextManager[None]:
        asked.update(options)
        return contextlib.nullcontext()

    runner = capture(graph)
    assert {name: value for name, value in asked.items() if name != "stream"} == {
        "capture_error_mode": "thread_local"
    }
    assert runner.description == "a stand-in, as a CUDA graph"


def capture(graph: Any) -> CudaRunner:
    """A runner of a program that does nothing; `graph` stands for torch.cuda.graph."""
    stream = mock.MagicMock()
    replaced = {
        "Stream": lambda device: stream,
        "current_stream": lambda device: stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": SimpleNamespace,
        "graph": graph,
    }
    forward = SimpleNamespace(description="a stand-in")
    program: Any = SimpleNamespace(max_moves=3, run=lambda num_moves: None, forward=forward)
    device: Any = "cuda"
    with mock.patch.multiple("torch.cuda", **replaced):
        return CudaRunner(program, device)


@contextlib.contextmanager
def broken_off(error: Exception) -> Iterator[None]:
    yield
    raise error


def test_a_graph_that_cannot_be_captured_is_reported_with_the_reason(capsys: pytest.CaptureFixture[str]):
    runner = capture(lambda captured, **options: broken_off(RuntimeError("not permitted\nmore")))
    assert runner.graph is None
    assert runner.description.endswith("graph: not permitted")
    expected = "alphazero: evaluations on cuda without CUDA graph: not permitted\n"
    assert capsys.readouterr().err.endswith(expected)


def test_a_capture_that_memory_does_not_suffice_for_is_an_error_of_memory():
    words = "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
    with pytest.raises(RuntimeError, match="DEVICE_ALLOCATION_FAILED"):
        capture(lambda captured, **options: broken_off(RuntimeError(words)))


ATTENTION: dict[str, Any] = {
    **{"body": "attention", "heads": 2, "ffn_width": 24, "smolgen_channels": 2, "smolgen_hidden": 8},
    **{"smolgen_size": 4, "embedding_width": 4},
}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "tower": ("chess", {"policy_head": "attention"}),
    "attention body": ("chess", {"policy_head": "attention", **ATTENTION}),
    "attention body with a map": ("chess", {"policy_head": "attention", **ATTENTION, "embedding": "map"}),
    "attention body of Connect Four": ("connect4", ATTENTION),
}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_captured_batch_waits_for_no_number_and_stays_on_the_device(name: str, precision: str):
    """On "meta" nothing has a value: shapes that depend on one fail, and so does a copy to the host."""
    game, shape = NETWORKS[name]
    network, dtype, meta = trained_like(game, **shape), DTYPES[precision], torch.device("meta")
    forward = ModuleForward(network, meta, dtype)
    places = policy_places(network.config, network.spec)
    program = BatchProgram(forward, places, network.spec, 8, meta, dtype)
    with StaysOn(meta):
        program.run(program.max_moves)


class StaysOn(TorchDispatchMode):
    """Every tensor that an operator makes is on this device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            assert not isinstance(tensor, torch.Tensor) or tensor.device == self.device, function
        return result
