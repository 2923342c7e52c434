"""Program: runs a command that is killed by the system when the parent of this program dies.

    python die_with_parent.py PARENT_PID {alone|with-children} COMMAND [ARGUMENT ...]

`alone`: this program becomes the command. `with-children`: it stays the parent of the command and of all
processes that the command starts, in whatever session, and kills them when the command ends, on SIGTERM, and
when its own parent dies. It is a separate file because `python -I -S` runs it by its path: without this
package and without site-packages it starts within milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # prctl(2); it stays over execve
PR_SET_CHILD_SUBREAPER = 36  # orphans below this process become its children
CANNOT_START = 127  # as shells say it
LONGEST_END_S = 5.0  # for processes that cannot be killed
GLANCE_S = 0.005
LIBC = ctypes.CDLL(None)  # opened before a fork


def guarded(command: tuple[str, ...], *, with_children: bool = False) -> list[str]:
    """The command line that starts `command` so that it does not outlive this process.

    with_children: nor do the processes that it starts; SIGTERM to the started process ends all of them.
    """
    kind = "with-children" if with_children else "alone"
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), kind, *command]


def main(argv: list[str]) -> NoReturn:
    """Never returns."""
    parent, kind, command = int(argv[1]), argv[2], argv[3:]
    if kind == "with-children":
        signal.signal(signal.SIGTERM, _on_sigterm)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        die_with(parent, signal.SIGTERM)
        me = os.getpid()
        if child := os.fork():
            _keep(child)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        parent = me
    die_with(parent, signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def die_with(parent: int, sign: signal.Signals) -> None:
    """This process gets `sign` when its parent, or the thread of it that started this process, ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, sign)
    if os.getppid() != parent:  # it died in between
        os._exit(CANNOT_START)


def _keep(child: int) -> NoReturn:
    """Wait for the command to end, then end what is left and end as it did."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # the command alone holds its pipes
        os.dup2(nothing, stream)
    while True:
        ended, status = os.wait()
        if ended == child:
            _kill_children()
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    _kill_children()
    os._exit(128 + number)


def _kill_children() -> None:
    """Kill children until there are none: those of a killed one become children of this process."""
    deadline = time.monotonic() + LONGEST_END_S
    while time.monotonic() < deadline:
        for process in _children():
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # none is left
            return
        time.sleep(GLANCE_S)


def _children() -> list[int]:
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(process.name)] = (process / "stat").read_bytes().rpartition(b")")[2].split()[1]
    return [process for process, parent in parents.items() if int(parent) == os.getpid()]


if __name__ == "__main__":
    main(sys.argv)
