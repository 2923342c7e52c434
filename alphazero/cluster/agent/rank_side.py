"""The rank's end of supervision: its output goes where the node agent reads it; a signal shows its stacks."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

OUTPUT_VARIABLE = "ALPHAZERO_RANK_OUTPUT"  # a directory with one FIFO or terminal a local rank
# Set where one head shows what the ranks of all hosts say; without it each host has a terminal of its own.
ONE_HEAD_VARIABLE = "ALPHAZERO_ONE_HEAD"
STACKS_SIGNAL = signal.SIGUSR2


def shows_common_errors(environment: Mapping[str, str]) -> bool:
    """Whether this process shows an error that all ranks raise alike: one does for each terminal."""
    if environment.get("RANK", "0") == "0":
        return True
    return environment.get("LOCAL_RANK") == "0" and ONE_HEAD_VARIABLE not in environment


def begin(environment: Mapping[str, str]) -> None:
    """Called first in a rank: redirect stdout and stderr if an agent listens, answer STACKS_SIGNAL.

    A rank that dies in native code (SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL) shows its stacks as well.
    """
    faulthandler.enable(all_threads=True)
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    directory, local_rank = environment.get(OUTPUT_VARIABLE), environment.get("LOCAL_RANK")
    if not directory or local_rank is None:
        return
    path = Path(directory, local_rank)
    if path.is_file():  # an ordinary file that says which terminal
        path = Path(path.read_text(encoding="utf-8"))
    # Without an agent behind it a FIFO would hold the rank for ever: the agent opens it first.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        os.set_blocking(descriptor, True)
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            os.dup2(descriptor, number)
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        os.close(descriptor)
