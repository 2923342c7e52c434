"""The place where actors and a learner meet: a directory or an object store, through pyarrow.fs.

Objects are whole or absent and, but for a few small pointers, never change. Nothing needs a conditional
write, a rename between objects, or a clock.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from alphazero.base.errors import ConfigError, DataError, PlaceError, PlaceRefusedError
from alphazero.base.files import read_at_most, remove_unfinished, replacing
from alphazero.base.place_name import is_url, read_place
from alphazero.base.text import reason, shortened

# The layout: folders, and the pointers within the place.
GAMES, WEIGHTS, ACTORS = "games", "weights", "actors"
SETTINGS, NEWEST, LEARNER = "settings.json", f"{WEIGHTS}/newest.json", "learner.json"
# Of a run: its place, where no other is named.
OF_A_RUN = "place"
_MARKS_OF_A_RUN = ("config.json", "checkpoints", OF_A_RUN)

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_EXPIRED = ("expiredtoken", "tokenexpired", "tokenhasexpired", "requestexpired", "requesthasexpired")
# What services say, without underscores and in small letters; the first that is found tells.
_CAUSES = (
    ("requesttimetooskewed", "the clock of this machine is wrong; expected the time of the service (NTP)"),
    *((word, "the credentials have expired; expected new ones") for word in _EXPIRED),
    ("invalidaccesskeyid", "the access key is not known there; expected other credentials"),
    ("signaturedoesnotmatch", "the secret key is not the one of the access key; expected other credentials"),
    ("invalidtoken", "the session token is not accepted; expected other credentials"),
    ("unauthenticated", "the credentials are not accepted; expected others"),
    ("nosuchbucket", "no such bucket"),
    ("accessdenied", "access is denied; expected credentials that may read, write, list and delete"),
    ("permissiondenied", "access is denied; expected credentials that may read, write, list and delete"),
    ("httpstatus403", "access is denied; expected credentials that may read, write, list and delete"),
)
_DENIED = "access is denied"


@dataclass(frozen=True)
class PlaceEntry:
    """An object of a place: its name from the place's root on (games/0f.../00000000-....arrow), its size."""

    name: str
    size_bytes: int


class MeetingPlace(Protocol):
    """What both sides do with a place. Names are relative, with slashes.

    All methods raise PlaceError where the place fails, PlaceRefusedError where it refuses: one line that
    names it.
    """

    name: str  # for messages

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whole or not at all; one of this name is replaced."""

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """An object's content, None where there is none. Raises DataError for a larger one."""

    def entries(self, folder: str) -> list[PlaceEntry]:
        """The objects in a folder and in the folders within it, by name; none where it is not there."""

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""

    def clear(self, folder: str) -> None:
        """Remove what killed writers left in a folder, and the folder if it is empty then.

        Only where no process writes to it any more, or this one alone does.
        """


def open_place(text: str, flag: str = "--for", *, make: bool = False) -> MeetingPlace:
    """The place that a user names: a URL, a directory, or a run, whose place is its directory `place`.

    make: the learner makes the directory; an actor never does, since a share that is not mounted looks like
    one that is missing. Raises ConfigError for what cannot be a place (see read_place), PlaceError.
    """
    read_place(flag, text)
    if is_url(text) and not text.startswith("file://"):
        return ObjectStore(text, flag)
    path = Path(text.removeprefix("file://"))
    if any((path / mark).exists() for mark in _MARKS_OF_A_RUN):
        path /= OF_A_RUN
    place = DirectoryPlace(path)
    if make:
        with place.faults("."):
            path.mkdir(parents=True, exist_ok=True)
    return place


class DirectoryPlace:
    """A directory, of this machine or shared by several."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def put(self, name: str, content: bytes) -> None:
        """See MeetingPlace."""
        path = self._path / name
        with self.faults(name):
            for is_last in (False, True):
                try:
                    self._require_root()
                    path.parent.mkdir(exist_ok=True, parents=True)
                    with replacing(path) as file:
                        file.write(content)
                    return
                except FileNotFoundError:  # the learner removed the empty folder meanwhile
                    if is_last:
                        raise

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """See MeetingPlace."""
        with self.faults(name):
            try:
                return read_at_most(self._path / name, most_bytes)
            except FileNotFoundError:
                self._require_root()
                return None
            except ValueError as error:
                raise DataError(f"{name}: {error}") from None
        raise AssertionError

    def entries(self, folder: str) -> list[PlaceEntry]:
        """See MeetingPlace."""
        found = []
        with self.faults(folder):
            self._require_root()
            for directory, _, names in os.walk(self._path / folder, onerror=_raise_unless_missing):
                for name in names:
                    if name.startswith("."):  # under way (base/files.py)
                        continue
                    path = Path(directory) / name
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        found.append(PlaceEntry(str(path.relative_to(self._path)), path.lstat().st_size))
        return sorted(found, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        """See MeetingPlace."""
        with self.faults(name):
            (self._path / name).unlink(missing_ok=True)

    def clear(self, folder: str) -> None:
        """See MeetingPlace."""
        path = self._path / folder
        with self.faults(folder):
            remove_unfinished(path)
            with contextlib.suppress(OSError):  # not empty, or gone
                path.rmdir()

    def _require_root(self) -> None:
        if not self._path.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such directory", self.name)

    @contextlib.contextmanager
    def faults(self, name: str) -> Iterator[None]:
        """What the system says in the block, as an error of the place."""
        try:
            yield
        except OSError as error:
            kind = PlaceRefusedError if error.errno in _REFUSED else PlaceError
            raise kind(f"{self.name}: {name}: {error.strerror or reason(error)}") from error


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


class ObjectStore:
    """A bucket, or what else pyarrow.fs opens. Credentials come from where that library takes them."""

    def __init__(self, url: str, flag: str) -> None:
        from pyarrow import fs

        self.name = url.partition("?")[0]
        if url.startswith("s3://"):
            # One PUT an object instead of an upload in parts, which a killed writer would leave behind.
            url += ("&" if "?" in url else "?") + "allow_delayed_open=true"
        try:
            with self._faults("."):
                self._files, self._root = fs.FileSystem.from_uri(url)
        except ValueError as error:  # also pyarrow's own
            raise ConfigError(f"{flag} {shortened(self.name)}: {reason(error)}") from None
        if not self._root:
            raise ConfigError(
                f"{flag} {shortened(self.name)}: names no bucket; expected {self.name}BUCKET/PATH"
            )

    def put(self, name: str, content: bytes) -> None:
        """See MeetingPlace."""
        with self._faults(name), self._files.open_output_stream(self._path(name)) as stream:
            stream.write(content)

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """See MeetingPlace."""
        with self._faults(name):
            try:
                with self._files.open_input_stream(self._path(name)) as stream:
                    content: bytes = stream.read(most_bytes + 1)
            except FileNotFoundError:
                return None
        if len(content) > most_bytes:
            raise DataError(f"{name}: over {most_bytes:,} bytes")
        return content

    def entries(self, folder: str) -> list[PlaceEntry]:
        """See MeetingPlace. S3: a request for each 1,000 objects."""
        from pyarrow import fs

        selector = fs.FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        with self._faults(folder):
            found = self._files.get_file_info(selector)
        start = len(self._root) + 1
        files = [PlaceEntry(one.path[start:], one.size) for one in found if one.type == fs.FileType.File]
        return sorted(files, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        """See MeetingPlace."""
        with self._faults(name), contextlib.suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def clear(self, folder: str) -> None:
        """See MeetingPlace: an object that was not written to its end is not there."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _faults(self, name: str) -> Iterator[None]:
        """What the library says in the block, as an error of the place."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            cause = _cause(error)
            if cause.startswith(_DENIED):
                cause = self._cause_of_denial() or cause
            kind = PlaceRefusedError if cause else PlaceError
            raise kind(f"{self.name}: {name}: {cause or reason(error)}") from error

    def _cause_of_denial(self) -> str:
        """Why all is denied: a service answers with its reason where it is asked for a list."""
        from pyarrow import fs

        try:
            files: Any = self._files
            files.get_file_info(fs.FileSelector(self._path(GAMES), allow_not_found=True))
        except OSError as error:
            return _cause(error)
        except AttributeError:  # it is being opened
            pass
        return ""


def _cause(error: OSError) -> str:
    """What a service refuses, in our words; "" where it does not refuse."""
    said = "".join(sign for sign in str(error).lower() if sign.isalnum())
    return next((cause for word, cause in _CAUSES if word in said), "")
