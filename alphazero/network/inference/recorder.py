"""Work on a device, recorded as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch

Work = Callable[[], object]
WARM_UP_RUNS = 3  # before a recording, as torch.cuda.make_graphed_callables does
# In torch's own "global" mode a recording fails when any thread of the process allocates or copies, as the
# writer of checkpoints does.
CAPTURE_ERROR_MODE = "thread_local"


class CudaRecorder:
    """Records work on a device as CUDA graphs, to be done again on the same memory.

    Those after one warm-up share memory and run in the order of their recording.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, work: Work) -> None:
        """Do the work a few times, so that kernels are chosen and libraries have their memory."""
        # Not one pool for all: torch cannot take up one whose graphs are gone.
        self._pool = torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_RUNS):
                work()
        current.wait_stream(self._stream)

    def record(self, work: Work) -> Work:
        """What does `work` again at little cost. Raises RuntimeError where it cannot be recorded."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode=CAPTURE_ERROR_MODE
            ):
                work()
        finally:
            torch.cuda.set_stream(current)  # torch leaves its own where the end of a capture fails
        replay: Work = graph.replay
        return replay
