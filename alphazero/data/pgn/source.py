"""Files that games are read from: found, opened whatever their compression, hashed as they are read.

Whatever a file holds, the text in memory at a time is bounded: packed data is unfolded piece by piece.
"""

from __future__ import annotations

import bz2
import errno
import hashlib
import io
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import zstandard
from isal import igzip_lib

from alphazero.errors import DataError
from alphazero.text import printable

SUFFIXES = tuple(f".pgn{packing}" for packing in ("", ".gz", ".bz2", ".zst"))

_RAW_BLOCK_BYTES = 1 << 20
_PACKED_BLOCK_BYTES = 1 << 14
_TEXT_BLOCK_BYTES = 1 << 17  # that gzip and bzip2 may unfold at once
# Its library unfolds all that it is given. A block of up to 128 KiB takes 4 bytes at least (RFC 8878, section
# 3.1.1.2), so this much makes at most 64 MiB.
_ZSTD_PIECE_BYTES = 1 << 11
_ZSTD_WINDOW_BYTES = 1 << 27  # the decoder holds as much as the header asks for; zstd's own limit

_REFUSED = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\xfd7zXZ\x00": "xz data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
# isal's stubs take this class for an instance.
_ISAL_ERROR = cast(type[Exception], igzip_lib.error)
_DAMAGE = (EOFError, zstandard.ZstdError, _ISAL_ERROR)

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NoFileError(DataError):
    """A pipe, device or the like among the games: to read from one could wait for ever."""


@dataclass(frozen=True)
class Source:
    """A file as it was when found. `name` is the same on any machine, and UTF-8: it goes into the store."""

    path: Path
    name: str
    size_bytes: int
    mtime_ns: int


def _ignore(line: str) -> None:
    """Tells nobody."""


def find_sources(arguments: Sequence[Path], say: Callable[[str], None] = _ignore) -> list[Source]:
    """The files behind paths: files as given, directories searched for SUFFIXES and sorted.

    A file is named by its place below the directory given, or by its last part; where two would be named
    alike, by their paths as given. What is below a directory and no file (a pipe, a device) is passed over,
    and `say` told of it. Raises DataError for what cannot be read or is named twice.
    """
    found: list[tuple[Path, str]] = []
    for argument in arguments:
        if argument.is_dir():
            inside = _files_below(argument, say)
            if not inside:
                expected = ", ".join(SUFFIXES)
                raise DataError(
                    f"{argument}: no PGN files below this directory; expected names in {expected}"
                )
            found += [(path, printable(path.relative_to(argument))) for path in inside]
        else:
            found.append((argument, printable(argument.name)))
    names = Counter(name for _, name in found)
    sources = []
    seen: set[Path] = set()
    for path, name in found:
        resolved = path.resolve()
        if resolved in seen:
            raise DataError(f"{path}: given twice; its games would count double")
        seen.add(resolved)
        sources.append(_source(path, name if names[name] == 1 else printable(path)))
    return sources


def _files_below(directory: Path, say: Callable[[str], None]) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot read: {error.strerror}") from error

    paths = sorted(
        Path(folder) / name
        for folder, _, names in os.walk(directory, onerror=refuse)
        for name in names
        if name.lower().endswith(SUFFIXES)
    )
    files = []
    for path in paths:
        try:
            _open_file(path).close()
            files.append(path)
        except NoFileError as error:
            say(f"passed over: {error}")
    return files


def _open_file(path: Path) -> io.FileIO:
    """Open a file to read. Raises DataError, NoFileError for what is no file; it never waits."""
    try:
        # A pipe that nobody writes to is opened at once.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        mode = os.fstat(descriptor).st_mode
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise NoFileError(f"{path}: this is no file; expected a file of PGN games") from error
        raise DataError(f"{path}: cannot read: {error.strerror}") from error
    for is_kind, what in _KINDS:
        if is_kind(mode):
            os.close(descriptor)
            raise NoFileError(f"{path}: this is {what}; expected a file of PGN games")
    return io.FileIO(descriptor, "rb")


def _source(path: Path, name: str) -> Source:
    with _open_file(path) as file:
        status = os.fstat(file.fileno())
    return Source(path, name, status.st_size, status.st_mtime_ns)


class _HashingFile(io.RawIOBase):
    """A file that hashes and counts what is read from it."""

    def __init__(self, path: Path, count_bytes: Callable[[int], None]) -> None:
        self._stream = _open_file(path)
        self._count_bytes = count_bytes
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        num_bytes = self._stream.readinto(buffer)
        if num_bytes:
            self.digest.update(memoryview(buffer)[:num_bytes])
            self._count_bytes(num_bytes)
        return num_bytes or 0

    def close(self) -> None:
        self._stream.close()
        super().close()


class SourceReader:
    """The text of one source, decompressed, in blocks; afterwards the sha256 of the file itself."""

    def __init__(self, source: Source, count_bytes: Callable[[int], None]) -> None:
        """`count_bytes` is told how much of the file itself was read, from whichever thread reads.

        Raises DataError.
        """
        self.source = source
        self.text_bytes = 0  # told so far
        self._raw = _HashingFile(source.path, count_bytes)
        self._buffered = io.BufferedReader(self._raw, _RAW_BLOCK_BYTES)

    def blocks(self, block_bytes: int) -> Iterator[bytes]:
        """The text in blocks of about `block_bytes`. Raises DataError for damaged data."""
        packing = "file"
        try:
            head = self._buffered.peek(8)[:8]
            for magic, what in _REFUSED.items():
                if head.startswith(magic):
                    raise DataError(
                        f"{self.source.path}: this is {what}; expected PGN text: plain, gzip, bzip2 or zstd"
                    )
            packing, opened = self._unpack(head, block_bytes)
            for block in opened:
                self.text_bytes += len(block)
                yield block
        except _DAMAGE as error:
            raise self._damaged(packing, error) from error
        except OSError as error:
            if error.errno is None:  # bz2 says so of damaged data
                raise self._damaged(packing, error) from error
            raise DataError(f"{self.source.path}: cannot read: {error.strerror}") from error

    def sha256(self) -> str:
        """Hex digest of the whole file; reads what is left of it."""
        try:
            while self._buffered.read(_RAW_BLOCK_BYTES):
                pass
        except OSError as error:
            raise DataError(f"{self.source.path}: cannot read: {error.strerror}") from error
        return self._raw.digest.hexdigest()

    def close(self) -> None:
        """Let go of the file."""
        self._buffered.close()

    def _unpack(self, head: bytes, block_bytes: int) -> tuple[str, Iterator[bytes]]:
        if head.startswith(b"\x1f\x8b"):
            return "gzip", _frames(self._buffered, _begin_gzip)
        if head.startswith(b"BZh"):
            return "bzip2", _frames(self._buffered, bz2.BZ2Decompressor)
        if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
            return "zstd", _frames(self._buffered, _ZstdFrame)
        return "text", _read_blocks(self._buffered, block_bytes)

    def _damaged(self, packing: str, error: BaseException) -> DataError:
        reason = " ".join(str(error).split())
        if "too much memory" in reason:
            reason = (
                f"its window is above {_ZSTD_WINDOW_BYTES >> 20} MiB; expected one made without zstd --long"
                " above 27"
            )
        return DataError(
            f"{self.source.path}: damaged {packing} data after {self.text_bytes} bytes of text: {reason}"
        )


def _read_blocks(stream: IO[bytes], block_bytes: int) -> Iterator[bytes]:
    while block := stream.read(block_bytes):
        yield block


class _Frame(Protocol):
    """What bz2, isal and _ZstdFrame have in common: one frame (gzip: member) of a file."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _begin_gzip() -> _Frame:
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


class _ZstdFrame:
    """A zstd frame that is given its data piece by piece, so that what a call unfolds is bounded."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
        self._waiting = b""
        self._begin = 0  # of what waits

    @property
    def eof(self) -> bool:
        """The frame has ended."""
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        """All that it was given is unfolded."""
        return self._begin >= len(self._waiting)

    @property
    def unused_data(self) -> bytes:
        """What it was given beyond the frame's end."""
        return self._frame.unused_data + self._waiting[self._begin :]

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Unfold a piece of `data`, or of what was given before: that bounds the text, not max_length."""
        if data:
            self._waiting, self._begin = data, 0
        piece = self._waiting[self._begin : self._begin + _ZSTD_PIECE_BYTES]
        self._begin += len(piece)
        return self._frame.decompress(piece)


def _frames(stream: IO[bytes], begin_frame: Callable[[], _Frame]) -> Iterator[bytes]:
    """The text of one frame after another; raises EOFError where the last one breaks off."""
    frame: _Frame | None = None
    while data := stream.read(_PACKED_BLOCK_BYTES):
        while data:
            if frame is None:
                data = data.lstrip(b"\0")  # tape drives pad with zeros, and gzip passes over them
                if not data:
                    break
                frame = begin_frame()
            while True:
                text = frame.decompress(data, _TEXT_BLOCK_BYTES)
                for begin in range(0, len(text), _TEXT_BLOCK_BYTES):
                    yield text[begin : begin + _TEXT_BLOCK_BYTES] if len(text) > _TEXT_BLOCK_BYTES else text
                data = b""
                if frame.eof or frame.needs_input:
                    break
            if frame.eof:
                data, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("it breaks off in the middle")
