"""The place where actors and a learner meet: a directory or an object store, through pyarrow.fs.

Objects are whole or absent and, but for a few small pointers, never change. Nothing needs a conditional
write, a rename between objects, or a clock.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pyarrow import fs

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
# What services say, in small letters without punctuation; the first one found tells.
_DENIED = "access is denied; expected credentials that may read, write, list and delete"
_CAUSES = {
    "requesttimetooskewed": "the clock of this machine says {now}; expected the time of the service (NTP)",
    "expiredtoken": "the credentials have expired; expected new ones",
    "tokenhasexpired": "the credentials have expired; expected new ones",
    "invalidaccesskeyid": "the access key is not known there; expected other credentials",
    "signaturedoesnotmatch": "the secret key is not that of the access key; expected other credentials",
    "invalidtoken": "the session token is not accepted; expected other credentials",
    "unauthenticated": "the credentials are not accepted; expected others",
    "nosuchbucket": "no such bucket",
    **dict.fromkeys(("accessdenied", "permissiondenied", "httpstatus403"), _DENIED),
}
_UNEXPLAINED = "No response body"  # of S3, to a question about one object


@dataclass(frozen=True)
class PlaceEntry:
    """An object of a place: its name from the place's root on (games/0f.../00000000-....arrow), its size."""

    name: str
    size_bytes: int


def open_place(text: str, flag: str = "--for", *, make: bool = False) -> MeetingPlace:
    """The place that a user names: a URL, a directory, or a run, whose place is its directory `place`.

    make: the learner makes the directory; an actor never does, since a share that is not mounted looks like
    one that is missing. Raises ConfigError for what cannot be a place (see read_place), PlaceError.
    """
    read_place(flag, text)
    if not is_url(text) or text.startswith("file://"):
        path = Path(text.removeprefix("file://"))
        if any((path / mark).exists() for mark in _MARKS_OF_A_RUN):
            path /= OF_A_RUN
        root = str(path.absolute())
        place = MeetingPlace(str(path), root, fs.LocalFileSystem(), root, path)
        if make:
            with place.faults("."):
                path.mkdir(parents=True, exist_ok=True)
        return place
    name, address = text.partition("?")[0], text
    if text.startswith("s3://"):
        # One PUT an object instead of an upload in parts, which a killed writer would leave behind.
        text += ("&" if "?" in text else "?") + "allow_delayed_open=true"
    try:
        files, root = fs.FileSystem.from_uri(text)
    except ValueError as error:  # also pyarrow's own
        raise ConfigError(f"{flag} {shortened(name)}: {reason(error)}") from None
    except OSError as error:
        raise PlaceError(f"{name}: {reason(error)}") from error
    if not root:
        raise ConfigError(f"{flag} {shortened(name)}: expected {name}BUCKET/PATH")
    return MeetingPlace(name, address, files, root)


class MeetingPlace:
    """What both sides do with a place. Names are relative, with slashes.

    All methods raise PlaceError where the place fails and PlaceRefusedError where it refuses: one line that
    names it.
    """

    def __init__(
        self, name: str, address: str, files: fs.FileSystem, root: str, directory: Path | None = None
    ) -> None:
        """name: for messages. address: the same wherever it is named. directory: the root, if it is one."""
        self.name, self.address = name, address
        self._files, self._root, self._directory = files, root, directory

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whole or not at all; one of this name is replaced."""
        with self.faults(name):
            if self._directory is None:
                with self._files.open_output_stream(self._path(name)) as stream:
                    stream.write(content)
                return
            path = self._directory / name
            self._require_root()
            path.parent.mkdir(exist_ok=True, parents=True)
            with replacing(path) as file:
                file.write(content)

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """An object's content, None where there is none. Raises DataError for a larger one."""
        with self.faults(name):
            self._require_root()
            try:
                if self._directory is not None:
                    return read_at_most(self._directory / name, most_bytes)
                with self._files.open_input_stream(self._path(name)) as stream:
                    content: bytes = stream.read(most_bytes + 1)
                if len(content) <= most_bytes:
                    return content
            except FileNotFoundError:
                return None
            except ValueError:
                pass
        raise DataError(f"{name}: over {most_bytes:,} bytes")

    def entries(self, folder: str) -> list[PlaceEntry]:
        """The objects in a folder and in those within it, by name; none where it is not there.

        S3: a request for each 1,000 objects.
        """
        with self.faults(folder):
            self._require_root()
            selector = fs.FileSelector(self._path(folder), allow_not_found=True, recursive=True)
            files = [info for info in self._files.get_file_info(selector) if info.type == fs.FileType.File]
        start = len(self._root) + 1
        objects = sorted((info.path[start:], info.size) for info in files)
        return [PlaceEntry(*entry) for entry in objects if not PurePosixPath(entry[0]).name.startswith(".")]

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, also of empty ones; none in a store: it has objects alone."""
        if self._directory is None:
            return []
        with self.faults(folder):
            self._require_root()
            selector = fs.FileSelector(self._path(folder), allow_not_found=True)
            infos = self._files.get_file_info(selector)
        return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with self.faults(name), contextlib.suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def clear(self, folder: str) -> None:
        """Remove what killed writers left in a folder, and the folder if it is empty then.

        Only where no other process writes to it. A store keeps nothing unfinished.
        """
        if self._directory is not None:
            with self.faults(folder):
                remove_unfinished(self._directory / folder)
            with contextlib.suppress(OSError):  # not empty, or gone
                (self._directory / folder).rmdir()

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _require_root(self) -> None:
        if self._directory is not None and not self._directory.is_dir():
            raise OSError(errno.ENOENT, "no such directory") from None

    @contextlib.contextmanager
    def faults(self, name: str) -> Iterator[None]:
        """What the system or a library says in the block, as an error of the place."""
        try:
            yield
        except OSError as error:
            cause = _cause(error) if self._directory is None else ""
            if cause == _DENIED or _UNEXPLAINED in str(error):  # it explains itself where asked for a list
                try:
                    self._files.get_file_info(fs.FileSelector(self._path(GAMES), allow_not_found=True))
                except OSError as another:
                    cause = _cause(another) or cause
            kind = PlaceRefusedError if cause or error.errno in _REFUSED else PlaceError
            raise kind(f"{self.name}: {name}: {cause or error.strerror or reason(error)}") from error


def _cause(error: OSError) -> str:
    """What a service refuses, in our words; "" where it does not refuse."""
    said = "".join(sign for sign in str(error).lower() if sign.isalnum())
    cause = next((cause for word, cause in _CAUSES.items() if word in said), "")
    return cause.format(now=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
