"""Who writes to a directory: one process at a time, by a lock that the kernel frees when its holder ends.

The lock is flock(2) on a file of the directory, in which its holder writes who it is. Readers need none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alphazero.base.errors import BusyError, DataError
from alphazero.base.files import open_regular
from alphazero.base.records import from_json, to_json
from alphazero.base.text import escaped, printable

if TYPE_CHECKING:
    from filelock import FileLock

LOCK_FILE = ".alphazero.lock"
# How long a restart waits for what is left of the start before it.
ORPHAN_WAIT_S = 60.0
# A process that only looks (`holder_of`) is in the way for a moment; one that just locked has yet to sign.
GLANCE_S = 1.0
LARGEST_RECORD_BYTES = 4096
# The errors of flock(2) where a file system has no locks, or its lock server does not answer.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class Holder:
    """The process that writes to a directory. since: the wall clock in words, for messages only."""

    host: str
    pid: int
    purpose: str
    since: str

    def __str__(self) -> str:
        return escaped(f"{self.purpose}, process {self.pid} on {self.host}, since {self.since}")


@contextlib.contextmanager
def only_writer(
    directory: Path, purpose: str, say: Callable[[str], None], wait_s: float = 0.0
) -> Iterator[None]:
    """Hold the lock of `directory`, which is made where it is missing, within the block.

    purpose: what this process does there, for messages of others ("training"). say: gets a line when it
    waits. wait_s: how long, at most. Raises BusyError naming the process that holds it, OSError where the
    directory cannot be written.
    """
    path = directory / LOCK_FILE
    lock = lock_file(path, GLANCE_S)
    if lock is None and wait_s:
        say(f"{printable(directory)}: waiting up to {wait_s:.0f} s for {holder_of(directory)} to end")
        lock = lock_file(path, wait_s)
    if lock is None:
        raise BusyError(
            f"{directory}: in use ({holder_of(directory)}); expected one writer: wait for it to end, or use "
            "another directory"
        )
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        path.write_text(to_json(Holder(socket.gethostname(), os.getpid(), purpose, since)) + "\n")
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def lock_file(path: Path, wait_s: float) -> FileLock | None:
    """Lock a file, made with its directory; None where another process holds it for `wait_s` (-1: no limit).

    Raises DataError where the file system has no locks, OSError where the file cannot be written.
    """
    from filelock import FileLock, Timeout  # a tenth of a second, which most commands do without

    lock = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        return None
    except (FileNotFoundError, FileExistsError):  # the holder before took its directory away meanwhile
        if os.path.lexists(path.parent) and not path.parent.is_dir():
            raise
        return lock_file(path, wait_s)
    except OSError as error:
        if error.errno in NO_LOCKS:
            raise DataError(f"{path}: its file system has no locks; expected one with flock(2)") from error
        raise
    return lock


def holder_of(directory: Path) -> Holder | None:
    """Who holds the lock of `directory` now, None where none does or it cannot be known."""
    with contextlib.suppress(OSError), open_regular(directory / LOCK_FILE) as file:
        try:
            # A shared lock of a moment: it only fails where a process holds the exclusive one.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError):  # not signed yet, or another program's
                return from_json(Holder, file.read(LARGEST_RECORD_BYTES))
            return Holder("an unknown host", 0, "writing", "an unknown time")
    return None
