"""How a CUDA graph is captured, on a machine without CUDA: torch's part is played by a stand-in."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from alphazero.network.inference.program import CudaRunner


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
    assert runner.description == "a stand-in, without CUDA graph: not permitted"
    expected = "alphazero: evaluations on cuda without CUDA graph: not permitted\n"
    assert capsys.readouterr().err.endswith(expected)


def test_a_capture_that_memory_does_not_suffice_for_is_an_error_of_memory():
    words = "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
    with pytest.raises(RuntimeError, match="DEVICE_ALLOCATION_FAILED"):
        capture(lambda captured, **options: broken_off(RuntimeError(words)))
