"""How a CUDA graph is captured, on a machine without CUDA: torch's part is played by a stand-in."""

import contextlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

from alphazero.network.inference.program import CudaRunner


def test_a_capture_does_not_fail_because_another_thread_copies_a_checkpoint():
    """torch's own mode, "global", lets no thread of the process allocate meanwhile."""
    asked: dict[str, Any] = {}

    def graph(captured: object, **options: Any) -> contextlib.AbstractContextManager[None]:
        asked.update(options)
        return contextlib.nullcontext()

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
        runner = CudaRunner(program, device)
    assert asked == {"stream": stream, "capture_error_mode": "thread_local"}
    assert runner.description == "a stand-in, as a CUDA graph"
