"""Where an import is at work, <store>.importing/: made, recognised and removed; what is not ours stays.

It carries a marker, the content of its file `lock`. No link in it is followed.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from alphazero.base.errors import DataError
from alphazero.data.formats.journal import Journal
from alphazero.data.store.store import MANIFEST_NAME, QUARANTINE_NAME

MARKER = b"alphazero-pgn-import\n"
LOCK_NAME = "lock"
JOURNAL_NAME = "journal.json"
STORE_NAME = "store"

_TEMPORARY = r"\.{}\.\d+\.tmp"  # files.replacing
_OURS = re.compile(rf"{LOCK_NAME}|{re.escape(JOURNAL_NAME)}|" + _TEMPORARY.format(re.escape(JOURNAL_NAME)))
_FILES_OF_STORE = rf"(shard-\d{{5,}}\.arrow|{re.escape(MANIFEST_NAME)}|{re.escape(QUARANTINE_NAME)})"
_OURS_IN_STORE = re.compile(rf"{_FILES_OF_STORE}|{_TEMPORARY.format(_FILES_OF_STORE)}")


class WorkingDirectory:
    """The working directory of the import of one store, and the unfinished store in it."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".importing")
        self.lock = self.path / LOCK_NAME
        self.journal = self.path / JOURNAL_NAME
        self.store = self.path / STORE_NAME

    def make(self) -> None:
        """Make it, or find what an import of before left. Raises DataError for anything else there."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(exist_ok=True)
        except FileExistsError:
            pass  # a file or a link: check() names it
        except OSError as error:
            raise DataError(f"{self.path}: cannot make directory: {error.strerror}") from error
        self.check()

    def check(self) -> None:
        """Raises DataError unless all that is there was made by an import."""
        try:
            if not stat.S_ISDIR(self.path.lstat().st_mode):
                raise DataError(f"{self.path}: is a link or a file; an import makes a directory of that name")
            found = _entries(self.path)
            strays = _strays(self.path, found)
            if not strays and found and not self._is_marked(found):
                strays = [f"{found[0].name}, but no marker of an import"]
        except FileNotFoundError:
            return  # another import has finished and removed it
        except OSError as error:
            raise DataError(f"{error.filename or self.path}: cannot read: {error.strerror}") from error
        if strays:
            raise DataError(
                f"{self.path}: holds {strays[0]}; an import uses that name and finds nothing else there:"
                " move it away, or name another store"
            )

    def remove(self) -> None:
        """Remove what an import made, and the directory if that was all; other things stay."""
        try:
            self.check()
        except DataError:
            return
        self.remove_store()
        # The lock goes last: who waits for it then finds that it is not current any more.
        for path in sorted(_entries_if_there(self.path), key=lambda path: path.name == LOCK_NAME):
            if _OURS.fullmatch(path.name):
                path.unlink(missing_ok=True)
        _remove_if_empty(self.path)

    def remove_store(self) -> None:
        """Remove the unfinished store."""
        if _is_other(self.store, stat.S_ISDIR):
            return
        for path in _entries_if_there(self.store):
            if _OURS_IN_STORE.fullmatch(path.name):
                path.unlink(missing_ok=True)
        _remove_if_empty(self.store)

    def clean_store(self, known: dict[str, int]) -> None:
        """Make the store's directory hold the files `known` (bytes of each) alone, and the quarantine no more
        than its bytes: what was written after the journal goes. Raises DataError.
        """
        try:
            self.store.mkdir(exist_ok=True)
            self.check()
            for path in _entries(self.store):
                if path.name not in known:
                    path.unlink()
            quarantine = self.store / QUARANTINE_NAME
            with quarantine.open("ab") as stream:
                stream.truncate(known[QUARANTINE_NAME])
            found = {path.name: path.stat().st_size for path in self.store.iterdir()}
        except OSError as error:
            raise DataError(f"{self.store}: cannot write: {error.strerror}") from error
        if found != known:
            raise DataError(f"{self.store}: is not as its journal says; remove it to start anew")

    def _is_marked(self, found: list[Path]) -> bool:
        """By the marker, or as imports left it that wrote none: an empty lock, perhaps a journal."""
        if self.lock not in found:
            return False
        with self.lock.open("rb") as file:
            content = file.read(len(MARKER))
        if content:
            return MARKER.startswith(content)  # a full disk may have cut it off
        return len(found) == 1 or (self.journal in found and Journal.load(self.journal) is not None)


def _strays(directory: Path, found: list[Path]) -> list[str]:
    """Names of what no import makes: links, and files of other names or kinds."""
    strays = [
        path.name
        for path in found
        if not (
            (path.name == STORE_NAME and not _is_other(path, stat.S_ISDIR))
            or (_OURS.fullmatch(path.name) and not _is_other(path, stat.S_ISREG))
        )
    ]
    inside = _entries_if_there(directory / STORE_NAME) if not strays else []
    return strays + [
        f"{STORE_NAME}/{path.name}"
        for path in inside
        if not _OURS_IN_STORE.fullmatch(path.name) or _is_other(path, stat.S_ISREG)
    ]


def _is_other(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """True where something of another kind is there: itself, not what a link points to."""
    try:
        return not is_kind(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def _entries_if_there(directory: Path) -> list[Path]:
    try:
        return _entries(directory)
    except FileNotFoundError:
        return []


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):  # what is left in it is not ours, or is another import's by now
        directory.rmdir()
