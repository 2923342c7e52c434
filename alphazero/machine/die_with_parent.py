"""Program: becomes the command it is given, and is killed by the system when its parent dies.

    python die_with_parent.py PARENT_PID COMMAND [ARGUMENT ...]

It is a separate file because `python -I -S` runs it by its path: without this package and without
site-packages it starts within milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # prctl(2); it stays over execve
CANNOT_START = 127  # as shells say it


def guarded(command: tuple[str, ...]) -> list[str]:
    """The command line that starts `command` so that it does not outlive this process."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *command]


def main(argv: list[str]) -> None:
    """Never returns."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(argv[1]):  # it died in between
        sys.exit(CANNOT_START)
    try:
        os.execvp(argv[2], argv[2:])
    except OSError as error:
        sys.exit(f"{argv[2]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv)
