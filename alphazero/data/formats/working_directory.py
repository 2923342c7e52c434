"""Where an import is at work, <store>.importing/: made, recognized and removed.

It holds `lock`, whose content is a marker, and the unfinished store in `store/`. An import removes it when it
ends, and what a killed one left when it starts. A directory without the marker is refused and stays.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alphazero.base.errors import DataError
from alphazero.data.store.store import named_faults
from alphazero.machine.lock import lock_file

MARKER = b"alphazero-pgn-import\n"


class WorkingDirectory:
    """The working directory of the import of one store, and the unfinished store in it."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".importing")
        self.lock = self.path / "lock"
        self.store = self.path / "store"

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[None]:
        """Make it for the block, one import at a time; removed afterwards.

        Raises DataError where something else is there, and without `wait` where another import is at work.
        """
        with named_faults("make directory", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._check()
        with named_faults("lock", self.lock):
            lock = lock_file(self.lock, -1 if wait else 0)
        if lock is None:
            raise DataError(f"{self.path}: another import is at work here")
        try:
            # Where the import before took the directory away the store is whole, and nothing is written.
            with named_faults("write", self.lock), suppress(FileNotFoundError), self.lock.open("r+b") as file:
                file.write(MARKER)
            yield
        finally:
            self.remove()
            lock.release()

    def begin_store(self) -> bool:
        """Make an empty directory for the store; True where a killed import left one. Raises DataError."""
        with named_faults("write", self.store):
            if was_there := self.store.exists():
                shutil.rmtree(self.store)  # refuses a link
            self.store.mkdir()
        return was_there

    def remove(self) -> None:
        """Remove what an import made, and the directory if that was all; other things stay."""
        if not self._is_ours():
            return
        shutil.rmtree(self.store, ignore_errors=True)
        # The lock goes last: an import that waits for it then finds that it is not current.
        self.lock.unlink(missing_ok=True)
        with suppress(OSError):  # it holds something else, or belongs to another import by now
            self.path.rmdir()

    def _check(self) -> None:
        # Another import may have finished and removed it.
        with named_faults("read", self.path, within=True), suppress(FileNotFoundError):
            if self.path.is_symlink() or (any(self.path.iterdir()) and not self._is_ours()):
                raise DataError(
                    f"{self.path}: was not made by an import: move it away, or name another store"
                )

    def _is_ours(self) -> bool:
        """It has the marker, or nothing but a lock without one yet; a full disk may have cut it off."""
        with suppress(FileNotFoundError):
            if not self.path.is_symlink() and stat.S_ISREG(self.lock.lstat().st_mode):
                content = self.lock.read_bytes()
                return MARKER.startswith(content) and (bool(content) or len(list(self.path.iterdir())) == 1)
        return False
