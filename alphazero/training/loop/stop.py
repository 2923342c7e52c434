"""A wish to stop: Ctrl-C, SIGTERM or SIGUSR1 (SLURM's warning), answered with a checkpoint."""

from __future__ import annotations

import os
import signal
from types import FrameType

from alphazero.training.exchange import Exchange


class StopRequest:
    """Remembers the first of these signals; a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.signal: int = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._receive)

    @property
    def requested(self) -> bool:
        """True once a signal has come."""
        return self.signal != 0

    def exit_status(self, exchange: Exchange) -> int:
        """After a stop with a checkpoint: 128 + signal, but 0 under a launcher (it says why it ended)."""
        number = max(exchange.numbers(self.signal))
        # Set by torchrun and by deepspeed's launch.py; another status than 0 they take for a failure.
        launched = "TORCHELASTIC_RUN_ID" in os.environ or "CROSS_SIZE" in os.environ
        return 0 if launched else 128 + number

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or number
