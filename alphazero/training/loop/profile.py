"""A profile of some steps by torch: a trace with the parts of a step by name, and what fills a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from alphazero.base.text import reason
from alphazero.training.loop.part_clock import PartClock


class StepProfile:
    """Records the steps `first` to `last` of a rank, counted from 1, into a directory.

    RANK.FIRST-LAST.pt.trace.json.gz is read by ui.perfetto.dev, chrome://tracing and TensorBoard's profiler;
    RANK.FIRST-LAST.memory.pickle, of a GPU, by pytorch.org/memory_viz.
    """

    def __init__(
        self,
        steps: tuple[int, int],
        path: Path,
        clock: PartClock,
        device: torch.device,
        say: Callable[[str], None],
    ) -> None:
        """path: of the files, without their endings."""
        self._first, self._last = steps
        self._path = path
        self._clock = clock
        self._is_cuda = device.type == "cuda"
        self._say = say
        self._running: profile | None = None

    def at(self, step: int) -> None:
        """So many steps are done: begin before the first one to be recorded, write after the last."""
        if self._running is None and self._first - 1 <= step < self._last:
            self._begin()
        elif self._running is not None and step >= self._last:
            self.end()

    def _begin(self) -> None:
        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self._is_cuda]
        self._running = profile(activities=activities, record_shapes=True, profile_memory=True)
        self._running.start()
        self._clock.naming = record_function
        if self._is_cuda:
            torch.cuda.memory._record_memory_history()

    def end(self) -> None:
        """Write what was recorded; nothing where no step was."""
        running, self._running = self._running, None
        if running is None:
            return
        self._clock.naming = contextlib.nullcontext
        running.stop()
        try:
            self._path.parent.mkdir(exist_ok=True)
            files = [self._path.with_name(f"{self._path.name}.pt.trace.json.gz")]
            running.export_chrome_trace(str(files[0]))
            if self._is_cuda:
                files.append(self._path.with_name(f"{self._path.name}.memory.pickle"))
                torch.cuda.memory._dump_snapshot(str(files[1]))  # type: ignore[no-untyped-call]
                torch.cuda.memory._record_memory_history(enabled=None)
        except (OSError, RuntimeError) as error:  # training is worth more
            self._say(f"profile: {self._path.parent}: cannot be written: {reason(error)}")
        else:
            self._say(f"profile: {', '.join(map(str, files))}")
