"""A stop request: Ctrl-C, SIGTERM or SIGUSR1 (SLURM's warning), answered with a checkpoint.

And what else ranks tell each other at the end of their passes of a step.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntFlag, auto
from types import FrameType

from alphazero.run.rank import note_stop
from alphazero.training.ranks.exchange import Exchange


class StopRequest:
    """Remembers the first of these signals; a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.signal: int = 0
        self._interrupts = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._receive)

    @property
    def requested(self) -> bool:
        """True once a signal has come."""
        return self.signal != 0

    def exit_status(self, exchange: Exchange) -> int:
        """After a stop with a checkpoint, the same on all ranks: 128 + signal. Collective.

        0 where our agent reads the reason, and where torchrun would start the job again for any other.
        """
        status = 128 + max(exchange.numbers(self.signal))
        restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
        return 0 if note_stop(status) or restarts else status

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Signals raise KeyboardInterrupt within the block, in what may take minutes and asks for nothing."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        is_second = self.signal and number == signal.SIGINT
        self.signal = self.signal or number
        if is_second or self._interrupts:
            raise KeyboardInterrupt


class Event(IntFlag):
    """What the other ranks must know of a rank at the end of its passes of a step."""

    NONE = 0
    STOP = auto()  # a signal came
    SAVE = auto()  # rank 0's clock: a checkpoint is due
    FAULT = auto()  # its last checkpoint could not be written
    MEMORY = auto()  # the device's memory did not hold a micro-batch
    NOT_FINITE = auto()  # loss or gradients are not
    HOST_MEMORY = auto()  # the host is about to run out of memory


# After these no further step follows.
LAST_EVENTS = Event.STOP | Event.FAULT | Event.HOST_MEMORY
