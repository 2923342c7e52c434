"""Where the seconds from a command to its first step go: a table that --debug adds to the log."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import torch

from alphazero.base.errors import DEBUG_VARIABLE
from alphazero.base.text import table

# Of a word in its command line; the launcher's own is `launch`.
PROGRAMS = {"torchrun": "torchrun", "node_agent": "agent of this host", "launch": "launcher"}


class StartClock:
    """Notes when each stage of this rank's start ends, from the programs that started it to its first step.

    Where --debug is not given it notes nothing.
    """

    def __init__(self) -> None:
        # With the second of each stage's end; the first has none.
        self._stages: list[tuple[str, float]] = []
        if os.environ.get(DEBUG_VARIABLE):
            with contextlib.suppress(psutil.Error):  # a system that hides processes
                self._stages += _programs()

    def ended(self, stage: str) -> None:
        """The seconds since the stage before ended went into this one."""
        if self._stages:
            # By the clock by which the kernel notes when a process begins.
            self._stages.append((stage, time.clock_gettime(time.CLOCK_BOOTTIME)))

    def first_step_ended(self, device: torch.device, say: Callable[[str], None]) -> None:
        """Print the stages, once, as a table."""
        if not self._stages:
            return
        if device.type == "cuda":
            torch.cuda.synchronize()
        self.ended("first step, with games or a validation before it")
        ends_s = [end_s for _, end_s in self._stages]
        spent_s = [f"{end_s - begin_s:.2f} s" for begin_s, end_s in itertools.pairwise(ends_s)]
        rows = [("  ", seconds, stage) for seconds, (stage, _) in zip(spent_s, self._stages[1:], strict=True)]
        whole = f"from the command to the end of the first step: {ends_s[-1] - ends_s[0]:.2f} s"
        say("\n".join([whole, *table(rows, "lr")]))
        self._stages.clear()


def _programs() -> Iterator[tuple[str, float]]:
    """The programs of this job that led to this process: each one's stage ends when the next begins."""
    this, before, boot_s = psutil.Process(), "", psutil.boot_time()
    for process in (*reversed(this.parents()), this):
        words = " ".join(process.cmdline())
        name = next((text for word, text in PROGRAMS.items() if word in words), "")
        if process == this or (name and sys.executable in words):
            yield before, process.create_time() - boot_s
            before = name
