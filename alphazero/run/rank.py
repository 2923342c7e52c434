"""A rank's side of supervision: its heartbeat, its output, and the account of its end.

Each is a file that the node agent of its host reads; launch/blame.py decides by accounts which rank is to
blame, run/rank_watch.py by heartbeats which one holds up the others.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import faulthandler
import io
import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from shutil import disk_usage
from traceback import walk_tb
from typing import NoReturn, TypeVar

from alphazero.base.errors import AlphaZeroError, LostConnectionError
from alphazero.base.files import naming, read_text
from alphazero.base.records import from_json, to_json
from alphazero.machine.die_with_parent import die_with
from alphazero.machine.memory import memory_error

T = TypeVar("T")
SHORTEST_INTERVAL_S = 1.0
# A unique name for each start of a job, in the environment of all its processes: what an earlier start
# left behind has another one. Clocks, which can be set, could not distinguish them.
JOB_VARIABLE = "ALPHAZERO_JOB"


class Phase(str, Enum):
    """What a rank is doing. Each has a limit on how long nothing may move (run/rank_watch.py)."""

    START = "start"
    DATA = "data"  # made, imported, or brought together from all ranks
    STEP = "step"
    PLAN = "plan"  # the first step of a new plan: compiled, tuned, perhaps cut again
    VALIDATE = "validate"
    CHECKPOINT = "checkpoint"
    SELF_PLAY = "self-play"
    GATE = "gate"
    END = "end"


@dataclass(frozen=True)
class Heartbeat:
    """What a rank reported last.

    progress: grows while things move within the phase. changes: how often phase, step or progress had changed
    since the rank began, so that nothing that moves ever looks the same twice. job: see JOB_VARIABLE, "" for
    a rank without a supervisor. There is no time in it: its reader notes by its own clock when it changes.
    """

    rank: int
    host: str
    pid: int
    job: str
    step: int
    phase: Phase
    progress: int
    changes: int


class HeartbeatWriter:
    """Writes `directory`/rank-NNNNN.json, at most once per second unless the phase changes.

    job: by default that of the environment. clock: seconds that are never set back.
    """

    def __init__(
        self,
        directory: Path,
        rank: int,
        host: str,
        job: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"rank-{rank:05d}.json"
        self._rank = rank
        self._host = host
        self._job = os.environ.get(JOB_VARIABLE, "") if job is None else job
        self._clock = clock
        self._last: tuple[Phase, int, int] | None = None
        self._changes = 0
        self._written_at = 0.0

    def beat(self, phase: Phase, step: int, progress: int = 0) -> None:
        """Report the phase and step of this rank; `progress` grows while things move within the phase."""
        is_new_phase = self._last is None or self._last[0] is not phase
        if self._last != (phase, step, progress):
            self._last = (phase, step, progress)
            self._changes += 1
        now = self._clock()
        if not is_new_phase and now - self._written_at < SHORTEST_INTERVAL_S:
            return
        self._written_at = now
        beat = Heartbeat(self._rank, self._host, os.getpid(), self._job, step, phase, progress, self._changes)
        write_record(self._path, beat)


def read_heartbeats(directory: Path) -> list[Heartbeat]:
    """What every rank reported last, by rank; files of another version of this program are left out."""
    beats = (read_record(Heartbeat, path) for path in sorted(directory.glob("rank-*.json")))
    return [beat for beat in beats if beat is not None]


OUTPUT_VARIABLE = "ALPHAZERO_RANK_OUTPUT"  # a directory with one FIFO or terminal a local rank
# Set where one head shows the output of all hosts; without it each host has a terminal.
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
    die_with(os.getppid(), signal.SIGKILL)  # with its launcher, which dies with its agent
    path = Path(directory, local_rank)
    if path.is_file():  # an ordinary file that names a terminal
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


def end_process(status: int) -> NoReturn:
    """End as Python does, but without unloading modules and libraries.

    gloo, libuv and others still have threads; one that meets a partly unloaded interpreter can abort a
    process whose work is done, and the job would count as failed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    if files := sys.modules.get("pyarrow.fs"):  # it waits for S3 requests, minutes where none is answered
        atexit.unregister(files.ensure_s3_finalized)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 120  # as Python's own end
    os._exit(status)


MAX_TEXT = 500
SHARED_MEMORY = Path("/dev/shm")
FULL_BYTES = 1 << 20
# Kinds beside those of errors.py.
CRASH = "crash"  # an unforeseen exception
OUT_OF_MEMORY = "out of memory"
STOPPED = "stopped"  # by a signal to some rank of the job, after a checkpoint: no failure, but not the end


@dataclass(frozen=True)
class Failure:
    """What went wrong first: on which host, in which rank (None: the host's launcher, or the host).

    fate: how it ended; cause: why, in its own words. status: 128 + N for a death by signal N. kind: of
    errors.py, from above, or of launch/blame.py. ranks: those at fault, where the rank that failed knows
    others. at: when it came to pass, by time.monotonic() of the process that has this record, 0 where it is
    not known. A rank leaves its account without host, rank and fate, which its launcher adds for the agent
    of the host; that adds host and log for the head.
    """

    host: str = ""
    rank: int | None = None
    fate: str = ""
    cause: str = ""
    log: str = ""
    status: int = 1
    kind: str = ""
    ranks: tuple[int, ...] = ()
    at: float = 0.0

    @property
    def line(self) -> str:
        """All of it, as printed."""
        who = f"{self.host}" if self.rank is None else f"rank {self.rank} on {self.host}"
        cause = f": {self.cause.removeprefix('alphazero: error: ')}" if self.cause else ""
        log = f" (log: {self.host}:{self.log})" if self.log else ""
        return f"{who} {self.fate}{cause}{log}"


def note_failure(error: BaseException, status: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Called in a rank that is about to end with `status`: False where no agent looks for its account."""
    if isinstance(error, SystemExit):
        return False
    ranks = error.ranks if isinstance(error, AlphaZeroError) else ()
    account = Failure(cause=line_of(error), status=status, kind=kind_of(error), ranks=ranks)
    return _note(account, environment)


def line_of(error: BaseException) -> str:
    """What an error says, in one line; a full disk is named also where the system names no file."""
    text = str(error) if isinstance(error, (AlphaZeroError, OSError)) else f"{type(error).__name__}: {error}"
    line = next(iter(text.strip().splitlines()), "")[:MAX_TEXT]
    if not isinstance(error, OSError) or error.filename or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return line
    paths = (Path.cwd(), Path(tempfile.gettempdir()), SHARED_MEMORY)
    full = [str(path) for path in paths if path.is_dir() and disk_usage(path).free < FULL_BYTES]
    return f"{line} on {platform.node()}{': ' if full else ''}{', '.join(full)}"


def note_stop(status: int) -> bool:
    """Called in a rank that ends before the last step: False where no agent looks for its account."""
    return _note(Failure(status=status, kind=STOPPED), os.environ)


def _note(account: Failure, environment: Mapping[str, str]) -> bool:
    directory, local_rank = environment.get(OUTPUT_VARIABLE), environment.get("LOCAL_RANK")
    if not directory or local_rank is None:
        return False
    # The agent may be gone, or its disk full: the exit status remains.
    with contextlib.suppress(OSError):
        write_record(Path(directory, f"{local_rank}.account.json"), replace(account, at=time.monotonic()))
    return True


def kind_of(error: BaseException) -> str:
    """The kind of an exception, by its types and by where it was raised."""
    if isinstance(error, AlphaZeroError):
        return error.kind
    if memory_error(error):  # also of NCCL, before it is taken for a connection
        return OUT_OF_MEMORY
    # By name: a host without torch knows it too.
    types = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, ConnectionError) or "DistError" in types:
        return LostConnectionError.kind
    if isinstance(error, OSError):
        return AlphaZeroError.kind
    # gloo's errors have no separate type: the innermost Python function that one went through tells.
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    is_distributed = f"{modules[-1] if modules else ''}.".startswith("torch.distributed.")
    return LostConnectionError.kind if isinstance(error, RuntimeError) and is_distributed else CRASH


def write_record(path: Path, record: object) -> None:
    """Whole or not at all, but not flushed: what it says matters only while the machine runs."""
    temporary = path.with_suffix(".tmp")
    with naming(path):
        temporary.write_text(to_json(record), encoding="utf-8")
    temporary.replace(path)


def read_record(kind: type[T], path: Path) -> T | None:
    """None where there is no such file (by now), or one of another version of this program."""
    try:
        return from_json(kind, read_text(path))
    except (OSError, ValueError):
        return None
