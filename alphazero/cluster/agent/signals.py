"""Signals that ask a launcher or an agent for the end, counted instead of died of."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

# SIGUSR1: SLURM's warning before the time is over (--signal=USR1), as the trainer takes it.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class SignalInbox:
    """Counts the signals that ask for the end, instead of dying of them, while it is open."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[SignalInbox]:
        """Catch them within; a hang-up that was ignored before (nohup) stays ignored.

        Ctrl-Z is ignored: a head that is stopped is taken for dead, and its job is ended.
        """
        previous = {signal.SIGTSTP: signal.signal(signal.SIGTSTP, signal.SIG_IGN)}
        for number in STOP_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, self._receive)
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
