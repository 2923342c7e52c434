"""Where an import is at work, <store>.importing/: made, recognized and removed.

It holds `lock`, whose content is a marker, and the unfinished store in `store/`. An import removes it when it
ends, and what a killed one left when it starts. Anything else of that name is refused and stays; no link is
followed.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alphazero.base.errors import DataError
from alphazero.data.store.store import MANIFEST_NAME, QUARANTINE_NAME, named_faults
from alphazero.machine.lock import lock_file

MARKER = b"alphazero-pgn-import\n"
LOCK_NAME = "lock"
STORE_NAME = "store"

_FILES = rf"(shard-\d{{5,}}\.arrow|{re.escape(MANIFEST_NAME)}|{re.escape(QUARANTINE_NAME)})"
_OURS_IN_STORE = re.compile(rf"{_FILES}|\.{_FILES}\.\d+\.tmp")  # see files.replacing


class WorkingDirectory:
    """The working directory of the import of one store, and the unfinished store in it."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".importing")
        self.lock = self.path / LOCK_NAME
        self.store = self.path / STORE_NAME

    def make(self) -> None:
        """Make it, or accept what another import left. Raises DataError for anything else there."""
        with named_faults("make directory", self.path), suppress(FileExistsError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(exist_ok=True)
        self.check()  # names a file or a link that is there instead

    @contextmanager
    def locked(self, *, wait: bool) -> Iterator[None]:
        """One import at a time, within the block; without `wait`, DataError where another is at work."""
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
            lock.release()

    def begin_store(self) -> bool:
        """Make an empty directory for the store; True where a killed import left one. Raises DataError."""
        with named_faults("write", self.store):
            was_there = self.store.is_dir()
            self.check()
            self._remove_store()
            self.store.mkdir()
        return was_there

    def check(self) -> None:
        """Raise DataError unless all that is there was made by an import."""
        strays: list[str] = []
        # Another import may have finished and removed it.
        with named_faults("read", self.path, within=True), suppress(FileNotFoundError):
            if not stat.S_ISDIR(self.path.lstat().st_mode):
                raise DataError(f"{self.path}: is a link or a file; an import makes a directory of that name")
            strays = self._strays()
        if strays:
            raise DataError(
                f"{self.path}: holds {strays[0]}; expected what an import makes:"
                " move it away, or name another store"
            )

    def remove(self) -> None:
        """Remove what an import made, and the directory if that was all; other things stay."""
        try:
            self.check()
        except DataError:
            return
        self._remove_store()
        # The lock goes last: an import that waits for it then finds that it is not current.
        self.lock.unlink(missing_ok=True)
        _remove_if_empty(self.path)

    def _remove_store(self) -> None:
        for path in _entries(self.store):
            path.unlink(missing_ok=True)
        _remove_if_empty(self.store)

    def _strays(self) -> list[str]:
        """Names of what no import makes: links, and files of other names or kinds."""
        found = _entries(self.path)
        kinds = {LOCK_NAME: stat.S_ISREG, STORE_NAME: stat.S_ISDIR}
        strays = [path.name for path in found if path.name not in kinds or not _is(path, kinds[path.name])]
        strays = strays or [
            f"{STORE_NAME}/{path.name}"
            for path in _entries(self.store)
            if not _OURS_IN_STORE.fullmatch(path.name) or not _is(path, stat.S_ISREG)
        ]
        if not strays and found and not self._is_marked(found):
            strays = [f"{found[0].name} without the marker of an import"]
        return strays

    def _is_marked(self, found: list[Path]) -> bool:
        if self.lock not in found:
            return False
        with self.lock.open("rb") as file:
            content = file.read(len(MARKER))
        # A full disk may have cut the marker off; before it is written there is nothing else.
        return MARKER.startswith(content) if content else len(found) == 1


def _is(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """True where the entry itself, not what a link points to, is of a kind, or is gone."""
    try:
        return is_kind(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):  # it holds something else, or belongs to another import by now
        directory.rmdir()
