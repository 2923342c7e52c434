"""train_distributed.py with alarms that judge short intervals, so that tests need seconds, not minutes.

SHORTEST_INTERVAL_S: how long log intervals are put together. CLOCK_GAINS: seconds by which the host's clock
gains with every reading, more each time. MEMORY_LEFT: share of the memory that seems to be available.
"""

import dataclasses
import os
import sys

from alphazero.cli.main import entry_point
from alphazero.machine import memory
from alphazero.machine.memory import MemoryState
from alphazero.training.loop import alarms as job_alarms
from alphazero.training.loop import usage as host_board
from alphazero.training.loop.usage import HostNow, Read

job_alarms.SHORTEST_INTERVAL_S = float(os.environ.get("SHORTEST_INTERVAL_S", "1"))
CHECK = memory.HostMemory.check
HOST_READER = host_board.host_reader


def with_gaining_clock(*arguments: object) -> Read:
    """A host's readings under a clock that gains."""
    read, readings = HOST_READER(*arguments), 0

    def gaining() -> HostNow:
        nonlocal readings
        readings += 1
        now = read()
        return dataclasses.replace(now, clock_s=now.clock_s + readings * float(os.environ["CLOCK_GAINS"]))

    return gaining


def with_little_memory(self: memory.HostMemory) -> MemoryState:
    """The real state with less left."""
    state = CHECK(self)
    left = int(float(os.environ["MEMORY_LEFT"]) * state.total_bytes)
    return dataclasses.replace(state, available_bytes=left)


if "MEMORY_LEFT" in os.environ:
    memory.HostMemory.check = with_little_memory
if "CLOCK_GAINS" in os.environ:
    from alphazero.training.start import open_services

    open_services.host_reader = with_gaining_clock

if __name__ == "__main__":
    entry_point(["train", *sys.argv[1:]])
