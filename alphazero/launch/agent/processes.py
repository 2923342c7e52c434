"""The processes of a job on this host, found by the token in their environment, and how they are ended.

Every process that a job starts inherits the token: neither a new session (torchrun gives each rank one) nor
the death of its parent hides it, and no other job's process has it. Nothing is ever ended by name.

`SignalInbox` counts the signals that ask a launcher or an agent for the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import psutil

from alphazero.run.rank import JOB_VARIABLE

KILL_LIMIT_S = 5.0
PROC = Path("/proc")


def processes_of(token: str) -> list[psutil.Process]:
    """All living processes of the job, this one excepted."""
    mark = f"{JOB_VARIABLE}={token}".encode()
    processes = []
    for entry in PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # Ended meanwhile, or another user's: not ours.
        with contextlib.suppress(OSError, psutil.Error):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(entry.name))
                if is_alive(process):
                    processes.append(process)
    return processes


def ranks_of(token: str) -> dict[int, psutil.Process]:
    """The living ranks by local rank: the first on its branch that a launcher gave a LOCAL_RANK."""
    local_ranks: dict[psutil.Process, str | None] = {}
    for process in processes_of(token):
        with contextlib.suppress(psutil.Error):
            local_ranks[process] = process.environ().get("LOCAL_RANK")
    ranks: dict[int, psutil.Process] = {}
    for process, local_rank in local_ranks.items():
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            is_first = parent is None or local_ranks.get(parent) is None
            if local_rank is not None and local_rank.isdecimal() and is_first:
                ranks.setdefault(int(local_rank), process)
    return ranks


def is_alive(process: psutil.Process) -> bool:
    """True for a process that runs, sleeps or is stopped; False for a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """A signal to each; one that has ended meanwhile is left out."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


class JobEnding:
    """Ends every process of a job without blocking: call advance() until it returns True.

    SIGTERM first, SIGKILL after grace_s. It gives up KILL_LIMIT_S later: a process in an uninterruptible
    call cannot be waited for.
    """

    def __init__(self, token: str, grace_s: float) -> None:
        self._token = token
        self._kill_at = time.monotonic() + grace_s
        self._signalled: set[psutil.Process] = set()

    def advance(self) -> bool:
        """One look at what is left; True when nothing is."""
        left = processes_of(self._token)
        if not left:
            return True
        if time.monotonic() >= self._kill_at:
            send(left, signal.SIGKILL)
            return time.monotonic() >= self._kill_at + KILL_LIMIT_S
        # Processes that appear meanwhile get it as well; a stopped one would not see it.
        new = set(left) - self._signalled
        send(new, signal.SIGTERM)
        send(new, signal.SIGCONT)
        self._signalled |= new
        return False


# SIGUSR1: SLURM's warning before the time is over (--signal=USR1), as the trainer takes it.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class SignalInbox:
    """While it is open, signals that ask for the end are counted and do not kill the process."""

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
