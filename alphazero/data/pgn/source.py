"""Files that games are read from: found, opened whatever their compression, hashed as they are read."""

from __future__ import annotations

import bz2
import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import zstandard
from isal import isal_zlib

from alphazero.errors import DataError

SUFFIXES = tuple(f".pgn{packing}" for packing in ("", ".gz", ".bz2", ".zst"))

_RAW_BLOCK_BYTES = 1 << 20
_PACKED_BLOCK_BYTES = 1 << 14  # it may unfold to a thousand times its size at once
_GZIP_WBITS = 31  # zlib's code for the gzip format
_ZSTD_WINDOW_BYTES = 1 << 31  # zstd --ultra --long=31

_REFUSED = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\xfd7zXZ\x00": "xz data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
# isal's stubs take this class for an instance.
_ISAL_ERROR = cast(type[Exception], isal_zlib.error)
_DAMAGE = (EOFError, zstandard.ZstdError, _ISAL_ERROR)


@dataclass(frozen=True)
class Source:
    """A file as it was when found. `name` is the same on any machine: it goes into the store."""

    path: Path
    name: str
    size_bytes: int
    mtime_ns: int


def find_sources(arguments: Sequence[Path]) -> list[Source]:
    """The files behind paths: files as given, directories searched for SUFFIXES and sorted.

    A file is named by its place below the directory given, or by its last part; where two would be named
    alike, by their paths as given. Raises DataError for what cannot be read or is named twice.
    """
    found: list[tuple[Path, str]] = []
    for argument in arguments:
        if argument.is_dir():
            inside = _files_below(argument)
            if not inside:
                wanted = ", ".join(SUFFIXES)
                raise DataError(f"{argument}: no PGN files below this directory; expected names in {wanted}")
            found += [(path, path.relative_to(argument).as_posix()) for path in inside]
        else:
            found.append((argument, argument.name))
    names = Counter(name for _, name in found)
    sources = []
    seen: set[Path] = set()
    for path, name in found:
        resolved = path.resolve()
        if resolved in seen:
            raise DataError(f"{path}: given twice; its games would count double")
        seen.add(resolved)
        sources.append(_source(path, name if names[name] == 1 else path.as_posix()))
    return sources


def _files_below(directory: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot read: {error.strerror}") from error

    return sorted(
        Path(folder) / name
        for folder, _, names in os.walk(directory, onerror=refuse)
        for name in names
        if name.lower().endswith(SUFFIXES)
    )


def _source(path: Path, name: str) -> Source:
    try:
        status = path.stat()
        with path.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error
    return Source(path, name, status.st_size, status.st_mtime_ns)


class _HashingFile(io.RawIOBase):
    """A file that hashes and counts what is read from it."""

    def __init__(self, path: Path, count_bytes: Callable[[int], None]) -> None:
        self._stream = path.open("rb", buffering=0)
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
        try:
            self._raw = _HashingFile(source.path, count_bytes)
        except OSError as error:
            raise DataError(f"{source.path}: cannot read: {error.strerror}") from error
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
            return "gzip", _frames(self._buffered, lambda: isal_zlib.decompressobj(wbits=_GZIP_WBITS))
        if head.startswith(b"BZh"):
            return "bzip2", _frames(self._buffered, bz2.BZ2Decompressor)
        if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
            window = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
            return "zstd", _frames(self._buffered, window.decompressobj)
        return "text", _read_blocks(self._buffered, block_bytes)

    def _damaged(self, packing: str, error: BaseException) -> DataError:
        reason = " ".join(str(error).split())
        return DataError(
            f"{self.source.path}: damaged {packing} data after {self.text_bytes} bytes of text: {reason}"
        )


def _read_blocks(stream: IO[bytes], block_bytes: int) -> Iterator[bytes]:
    while block := stream.read(block_bytes):
        yield block


class _Decompressor(Protocol):
    """What zlib, bz2 and zstandard have in common: one frame (gzip: member) of a file."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _frames(stream: IO[bytes], begin_frame: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """The text of one frame after another; raises EOFError where the last one breaks off."""
    frame: _Decompressor | None = None
    while data := stream.read(_PACKED_BLOCK_BYTES):
        while data:
            if frame is None:
                data = data.lstrip(b"\0")  # tape drives pad with zeros, and gzip passes over them
                if not data:
                    break
                frame = begin_frame()
            if block := frame.decompress(data):
                yield block
            data = b""
            if frame.eof:
                data, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("it breaks off in the middle")
