"""Files that games are read from: found below the paths a user gives, opened, hashed as they are read.

Whatever a file holds, what is in memory at a time is bounded: packed data is unfolded piece by piece.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from alphazero.base.errors import DataError
from alphazero.base.files import OTHER_PACKINGS, open_regular, refuse_positions, resolved
from alphazero.base.text import printable, reason
from alphazero.data.store.store import named_faults

READ_BYTES = 1 << 20
PACKED_BLOCK_BYTES = 1 << 14
TEXT_BLOCK_BYTES = 1 << 17  # that gzip and bzip2 may unfold at once
ZSTD_WINDOW_BYTES = 1 << 27  # the decoder holds as much as the header asks for; zstd's own limit
_WINDOW_TOO_LARGE = "its window is above 128 MiB; expected one made without zstd --long above 27"


class NoFileError(DataError):
    """A pipe, device or the like among the games: to read from one could wait for ever."""


@dataclass(frozen=True)
class Source:
    """A file, or all of a directory that are read as one, as found: their whole size and newest change.

    path: as the user named it, or below that. name: the same on any machine, and UTF-8, as it goes into the
    store. is_named: by the user, so that the import ends where it cannot be read.
    """

    path: Path
    name: str
    size_bytes: int
    mtime_ns: int
    files: tuple[Path, ...]
    is_named: bool = True


def ignore(line: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Kind:
    """What a user may name for one format: what such files hold, and which below a directory are meant."""

    what: str  # "PGN games"
    files: str  # "PGN files"
    expected: str  # of names below a directory
    is_meant: Callable[[str], bool]  # by its name in lower case
    joins_directory: bool = False  # all below a directory are one source


def find_sources(arguments: Sequence[Path], kind: Kind, say: Callable[[str], None] = ignore) -> list[Source]:
    """The sources behind paths: files as given, directories searched for the kind's names and sorted.

    A source is named by its place below the directory given, or by its last part; where two would be named
    alike, by their paths as given. Pipes, devices, files of other packings and what cannot be opened below a
    directory are passed over, with a line to `say`. Raises DataError for what cannot be read or is named
    twice.
    """
    groups: list[tuple[Path, str, list[Path]]] = []
    for argument in arguments:
        own_name = printable((resolved(argument) if kind.joins_directory else argument).name)
        if not argument.is_dir():
            refuse_positions(argument)
            groups.append((argument, own_name, [argument]))
            continue
        inside = _files_below(argument, kind, say)
        if not inside:
            raise DataError(
                f"{argument}: no {kind.files} below this directory; expected names in {kind.expected}"
            )
        if kind.joins_directory:
            groups.append((argument, own_name, inside))
        else:
            groups += [(path, printable(path.relative_to(argument)), [path]) for path in inside]
    names = Counter(name for _, name, _ in groups)
    sources = []
    seen: set[Path] = set()
    for path, name, files in groups:
        statuses = []
        for file in files:
            if resolved(file) in seen:
                raise DataError(f"{file}: given twice; its games would count double")
            seen.add(resolved(file))
            with open_file(file, kind.what) as opened:
                statuses.append(os.fstat(opened.fileno()))
        sources.append(
            Source(
                path,
                name if names[name] == 1 else printable(path),
                sum(status.st_size for status in statuses),
                max(status.st_mtime_ns for status in statuses),
                tuple(files),
                path in arguments,
            )
        )
    return sources


def names_below(directory: Path) -> list[Path]:
    """Every file, pipe and the like below a directory, sorted. Raises DataError."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot read: {error.strerror}") from error

    return sorted(
        Path(folder) / name for folder, _, names in os.walk(directory, onerror=refuse) for name in names
    )


def _files_below(directory: Path, kind: Kind, say: Callable[[str], None]) -> list[Path]:
    files = []
    for path in names_below(directory):
        if not kind.is_meant(name := path.name.lower()):
            if name.endswith(OTHER_PACKINGS):
                say(f"passed over: {path}: expected a name ending in {kind.expected}")
            continue
        try:
            open_file(path, kind.what).close()
            files.append(path)
        except DataError as error:
            say(f"passed over: {error}")
    return files


def open_file(path: Path, what: str) -> IO[bytes]:
    """Open a file to read. Raises DataError, NoFileError for what is no file; it never waits."""
    try:
        return open_regular(path)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.EINVAL, errno.ENXIO):  # the last is a socket's
            raise NoFileError(f"{path}: this is no file; expected a file of {what}") from error
        raise DataError(f"{path}: cannot read: {error.strerror}") from error


class HashingFile(io.RawIOBase):
    """A file that counts and hashes (hashlib's `update`) what is read from it. Reading raises DataError."""

    def __init__(
        self,
        path: Path,
        count_bytes: Callable[[int], None],
        what: str,
        update: Callable[[memoryview], None],
    ) -> None:
        self._path = path
        self._stream = open_file(path, what)
        self._count_bytes = count_bytes
        self._update = update

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        with named_faults("read", self._path):
            num_bytes: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        if num_bytes:
            self._update(memoryview(buffer)[:num_bytes])
            self._count_bytes(num_bytes)
        return num_bytes or 0

    def close(self) -> None:
        self._stream.close()
        super().close()


def read_to_end(stream: IO[bytes] | HashingFile) -> None:
    """Read what is left, so that all of the file is hashed."""
    while stream.read(READ_BYTES):
        pass


def sha256_of_source(source: Source) -> str:
    """Hex digest of the content of its files, one after the other. Raises DataError."""
    digest = hashlib.sha256()
    for path in source.files:
        with closing(HashingFile(path, lambda _: None, "games", digest.update)) as file:
            read_to_end(file)
    return digest.hexdigest()


class Frame(Protocol):
    """What the decompressors of bz2, isal and zstd have in common: one frame (gzip: member) of a file."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def begin_gzip() -> Frame:
    """A member of a gzip file."""
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


_LIBRARY_ERRORS = (("isal.igzip_lib", "error"), ("zstandard", "ZstdError"))


def _unpacking_errors() -> tuple[type[Exception], ...]:
    """What damaged data raises. A library is imported for the first file that it unpacks, and not before."""
    loaded = [getattr(sys.modules[name], error) for name, error in _LIBRARY_ERRORS if name in sys.modules]
    return EOFError, OSError, *loaded


def unpacked(
    stream: IO[bytes], begin_frame: Callable[[], Frame], origin: str, packing: str, what: str = "text"
) -> Iterator[bytes]:
    """What is packed in a stream, in pieces. origin, packing, what: of the DataError for damaged data."""
    size = 0
    try:
        for piece in _frames(stream, begin_frame):
            size += len(piece)
            yield piece
    except _unpacking_errors() as error:  # what cannot be read is a DataError already
        why = _WINDOW_TOO_LARGE if "too much memory" in str(error) else reason(error)
        raise DataError(f"{origin}: damaged {packing} data after {size} bytes of {what}: {why}") from error


def _frames(stream: IO[bytes], begin_frame: Callable[[], Frame]) -> Iterator[bytes]:
    """The text of one frame after another; raises EOFError where the last one breaks off."""
    frame: Frame | None = None
    while data := stream.read(PACKED_BLOCK_BYTES):
        while data:
            if frame is None:
                data = data.lstrip(b"\0")  # tape drives pad with zeros, and gzip passes over them
                if not data:
                    break
                frame = begin_frame()
            while True:
                text = frame.decompress(data, TEXT_BLOCK_BYTES)
                for begin in range(0, len(text), TEXT_BLOCK_BYTES):
                    yield text[begin : begin + TEXT_BLOCK_BYTES] if len(text) > TEXT_BLOCK_BYTES else text
                data = b""
                if frame.eof or frame.needs_input:
                    break
            if frame.eof:
                data, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("it breaks off in the middle")
