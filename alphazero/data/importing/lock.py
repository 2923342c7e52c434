"""One import at a time: an advisory lock on a file, which the kernel frees whatever becomes of its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from alphazero.errors import DataError


class ImportLock:
    """Held while its block runs. Without `wait`, raises DataError where another process holds it."""

    def __init__(self, path: Path, *, wait: bool, marker: bytes = b"") -> None:
        """marker: content of the file, which says whose it is."""
        self._path = path
        self._marker = marker
        self._wait = wait
        self._descriptor = -1

    def __enter__(self) -> ImportLock:
        try:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if self._wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            self._close()
            raise DataError(f"{self._path.parent}: another import is at work here") from error
        except FileNotFoundError:
            self._close()  # the other import finished just now: is_current() says so
        except OSError as error:
            self._close()
            raise DataError(f"{self._path}: cannot lock: {error.strerror}") from error
        self._mark()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def is_current(self) -> bool:
        """False if the file was removed while this process waited: then the lock holds off nobody."""
        if self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _mark(self) -> None:
        if self._descriptor < 0:
            return
        try:
            os.pwrite(self._descriptor, self._marker, 0)
        except OSError as error:
            self._close()
            raise DataError(f"{self._path}: cannot write: {error.strerror}") from error

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
