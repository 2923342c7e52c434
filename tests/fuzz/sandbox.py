"""A reader in a process of its own, with limits: what it said, and what was wrong with that."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from alphazero._core import GameError
from alphazero.base.errors import AlphaZeroError

MIB = 1 << 20
MEMORY_MIB = 1024  # beyond what the process has when the reader begins
LIMIT_S = 20  # of CPU time: the machine may be busy
WAIT_S = 120.0  # for what waits
LONGEST_LINE = 10000
UNFORESEEN = 99  # exit status of a reader that raised something else
STATUSES = (0, 2, 3)  # done, an AlphaZeroError

Reader = Callable[[], "int | None"]


@dataclass(frozen=True)
class Outcome:
    """fault: "" where the reader has read its input, or refused it in one line."""

    fault: str
    status: int
    said: str


def try_reader(read: Reader) -> Outcome:
    """Fork, read, and judge. The caller must have one thread."""
    with tempfile.TemporaryFile() as output:
        before_kib = int(_status_of("VmRSS").split()[0])
        pid = os.fork()
        if pid == 0:
            _read_and_exit(read, output.fileno())
        descriptor = os.pidfd_open(pid)
        ended, _, _ = select.select([descriptor], [], [], WAIT_S)
        os.close(descriptor)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, wait_status, usage = os.wait4(pid, 0)
        output.seek(0)
        said = output.read(MIB).decode(errors="replace")
    status = os.waitstatus_to_exitcode(wait_status)
    grown_mib = (usage.ru_maxrss - before_kib) / 1024
    return Outcome(_fault(status, said, grown_mib, hung=not ended), status, said)


def _fault(status: int, said: str, grown_mib: float, *, hung: bool) -> str:
    lines = said.strip().splitlines()
    last = lines[-1] if lines else ""
    if hung:
        return f"no end within {WAIT_S:.0f} s"
    if status == -signal.SIGXCPU:
        return f"no end within {LIMIT_S} s of CPU time"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}: {last}"
    if "Traceback" in said or status not in STATUSES:
        return f"exit status {status}: {last}"
    if status != 0 and not last.startswith("alphazero: error: "):
        return f"exit status {status} without an error's line: {last}"
    if status != 0 and (len(last) > LONGEST_LINE or sum("error: " in line for line in lines) > 1):
        return f"an error of {len(last)} characters in {len(lines)} lines: {last[:200]}"
    if grown_mib > MEMORY_MIB:
        return f"grew by {grown_mib:.0f} MiB"
    return ""


def _read_and_exit(read: Reader, output: int) -> NoReturn:
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    allowed = int(_status_of("VmSize").split()[0]) * 1024 + MEMORY_MIB * MIB
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY_MIB * MIB,) * 2)
    status = UNFORESEEN
    try:
        status = read() or 0
    except (AlphaZeroError, GameError) as error:  # as alphazero.cli.main shows it
        print(f"alphazero: error: {error}", file=sys.stderr)
        status = 2
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status_of(field: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return value.strip()
    raise KeyError(field)
