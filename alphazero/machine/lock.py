"""Who writes to a directory: one process at a time, by a lock that the kernel frees when its holder ends.

The lock is flock(2) on a file of the directory, which also names its holder. Readers need none. Where the
file system knows no locks, the file alone is the lock: it is stale once its process is gone, which only its
own host can know (by boot id and pid).

`import_lock` is the same for one import at a time.
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
from functools import cache
from pathlib import Path

from alphazero.base.errors import BusyError, DataError
from alphazero.base.files import open_regular
from alphazero.base.records import from_json, to_json
from alphazero.base.text import escaped

LOCK_FILE = ".alphazero.lock"
HELD_FILE = ".alphazero.held"  # the lock itself, where the file system has none
# How long a restart waits for what is left of the start before it.
ORPHAN_WAIT_S = 60.0
POLL_S = 0.1
# A process that only looks (`holder_of`) is in the way for a moment; one that just locked has yet to sign.
GLANCE_S = 1.0
LARGEST_RECORD_BYTES = 4096
# The error of open(2) or flock(2) where a file system has no locks, or its lock server does not answer.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Field 22 of /proc/PID/stat, counted behind the name in parentheses (proc(5)).
START_FIELD = 22 - 3

Say = Callable[[str], None]


@cache
def boot_id() -> str:
    """The kernel's id of this boot, the same in all containers and namespaces of a machine; "" if unknown."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def namespace(kind: str) -> str:
    """Of this process, "" if unknown: "pid", in which processes have their pids, or "net", the network.

    Another container of the same machine counts on its own.
    """
    try:
        return str(Path("/proc/self/ns", kind).readlink())
    except OSError:
        return ""


def process_started(pid: int) -> int:
    """When process `pid` began, in clock ticks since the boot; -1 where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[START_FIELD])
    except (OSError, ValueError, IndexError):
        return -1


@dataclass(frozen=True)
class Holder:
    """The process that writes to a directory.

    started: its start in clock ticks since the boot, so that a pid used again is not taken for it. since: the
    wall clock in words, for messages only.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: int
    purpose: str
    since: str

    def __str__(self) -> str:
        return escaped(f"{self.purpose}, process {self.pid} on {self.host}, since {self.since}")

    def is_gone(self) -> bool:
        """True where this host knows that the process has ended."""
        if self.host != socket.gethostname() or (
            self.boot == boot_id() and self.namespace != namespace("pid")
        ):
            return False
        return self.boot != boot_id() or process_started(self.pid) != self.started


# Of a lock that is held and does not say by whom.
UNKNOWN = Holder("an unknown host", "", "", 0, 0, "writing", "an unknown time")


def this_process(purpose: str) -> Holder:
    """The Holder that this process is."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    started = process_started(os.getpid())
    return Holder(socket.gethostname(), boot_id(), namespace("pid"), os.getpid(), started, purpose, since)


class DirectoryLock(contextlib.AbstractContextManager["DirectoryLock"]):
    """Held from acquire() to release() or the end of the process."""

    def __init__(self, directory: Path, descriptor: int, held: Path | None) -> None:
        self.directory = directory
        self._descriptor = descriptor
        self._held = held

    @classmethod
    def acquire(cls, directory: Path, purpose: str, say: Say, wait_s: float = 0.0) -> DirectoryLock:
        """Lock `directory`, which exists; wait `wait_s` at most for another process to let go.

        purpose: what this process does there, for messages of others ("training"). say: gets a line when it
        waits, and when the file system has no locks. Raises BusyError naming the process that holds it;
        OSError where the directory cannot be written.
        """
        started = time.monotonic()
        has_said = False
        while True:
            lock = cls._try(directory, purpose, say)
            if lock is not None:
                return lock
            holder = holder_of(directory)
            waited_s = time.monotonic() - started
            if holder in (None, UNKNOWN) and waited_s < GLANCE_S:
                time.sleep(POLL_S / 10)
                continue
            who = str(holder) if holder else "another process"
            if waited_s >= wait_s:
                raise BusyError(
                    f"{directory}: in use ({who}); expected one writer: wait for it to end, or use "
                    f"another directory{way_past_the_dead(directory)}"
                )
            if not has_said:
                say(f"{directory}: waiting up to {wait_s:.0f} s for {who} to end")
                has_said = True
            time.sleep(POLL_S)

    @classmethod
    def _try(cls, directory: Path, purpose: str, say: Say) -> DirectoryLock | None:
        path = directory / LOCK_FILE
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            if error.errno not in NO_LOCKS:
                raise
            return cls._try_without_locks(directory, purpose, say)
        if not _has_the_name(descriptor, path):  # withdrawn between our two calls: of no effect
            os.close(descriptor)
            return cls._try(directory, purpose, say)
        content = record_of(purpose)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        return cls(directory, descriptor, None)

    @classmethod
    def _try_without_locks(cls, directory: Path, purpose: str, say: Say) -> DirectoryLock | None:
        """A file that only one process can make; left by one that is gone, it is taken away first."""
        path = directory / HELD_FILE
        _take_away_if_stale(path)
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return None
        os.write(descriptor, record_of(purpose))
        os.close(descriptor)
        say(
            f"{directory}: its file system has no locks; {HELD_FILE} stands for one: remove it if its "
            "process on another host has died"
        )
        return cls(directory, -1, path)

    def withdraw(self) -> None:
        """Let go and remove the lock's file, so that a start that came to nothing leaves no trace."""
        if self._descriptor >= 0:
            (self.directory / LOCK_FILE).unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Let go; the file stays."""
        if self._held is not None:
            self._held.unlink(missing_ok=True)
            self._held = None
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __exit__(self, *_: object) -> None:
        self.release()


def holder_of(directory: Path) -> Holder | None:
    """Who holds the lock of `directory` now, None where none does or it cannot be known."""
    held = read_holder(directory / HELD_FILE)
    if held is not None and not held.is_gone():
        return held
    path = directory / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared lock of a moment: it only fails where a process holds the exclusive one.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_holder(path) or UNKNOWN
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def way_past_the_dead(directory: Path) -> str:
    """For messages: what to do about a lock whose holder, on another host, has died; "" where it is freed."""
    held = directory / HELD_FILE
    return f"; if that process has died, remove {held}" if os.path.lexists(held) else ""


def _take_away_if_stale(path: Path) -> None:
    """Remove what a dead process left. Two may try at a time: what one moves aside, it looks at again."""
    holder = read_holder(path)
    if holder is None or not holder.is_gone():
        return
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        path.rename(aside)
        if read_holder(aside) != holder:  # another process was faster, and this is its new lock
            os.link(aside, path)
    aside.unlink(missing_ok=True)


def _has_the_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def record_of(purpose: str) -> bytes:
    """This process as a lock file names it, for `read_holder`."""
    return (to_json(this_process(purpose)) + "\n").encode()


def read_holder(path: Path) -> Holder | None:
    """The process that a file names; None where there is no such file, or nothing of ours in it."""
    try:
        with open_regular(path) as file:
            return from_json(Holder, file.read(LARGEST_RECORD_BYTES))
    except (OSError, ValueError):  # another program's
        return None


@contextlib.contextmanager
def import_lock(path: Path, *, wait: bool, marker: bytes) -> Iterator[bool]:
    """One import at a time, within the block. Without `wait`, DataError where another process is at work.

    Yields False if the file was removed while this process waited: then the lock holds off no process.
    marker: content of the file, which identifies its owner.
    """
    descriptor, doing = -1, "lock"
    try:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            doing = "write"
            os.pwrite(descriptor, marker, 0)
        except BlockingIOError as error:
            raise DataError(f"{path.parent}: another import is at work here") from error
        except FileNotFoundError:
            pass  # the other import finished just now
        except OSError as error:
            raise DataError(f"{path}: cannot {doing}: {error.strerror}") from error
        yield descriptor >= 0 and _has_the_name(descriptor, path)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
