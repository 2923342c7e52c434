"""Files of lc0's training data: found, distinguished from PGN, and their records unpacked.

The data is published as uncompressed tar archives: members are read in order, nothing is extracted. The
reader is our own because what a header claims must not decide how much is read.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from alphazero.base.errors import DataError
from alphazero.base.text import counted, quoted, reason
from alphazero.data.formats.files import (
    Kind,
    begin_gzip,
    frames,
    names_below,
    open_file,
    unpacking_errors,
)

ARCHIVE_SUFFIX = ".tar"
GAME_SUFFIX = ".gz"
LARGEST_GAME_BYTES = 1 << 26  # unpacked: some 8,000 positions
_GZIP_MAGIC = b"\x1f\x8b"
_NEWEST_VERSION = 255  # a record begins with its version as u32; no text begins with three zero bytes


def _is_meant(name: str) -> bool:
    """By a name in lower case: no PGN, no weights."""
    return name.endswith((GAME_SUFFIX, ARCHIVE_SUFFIX)) and not name.endswith((".pgn.gz", ".pb.gz"))


KIND = Kind("lc0 training data", "lc0 training data", f"{GAME_SUFFIX}, {ARCHIVE_SUFFIX}", _is_meant, True)


def is_lc0(path: Path) -> bool:
    """Does a path that a user named hold lc0's training data? By names, and a file by what it begins with."""
    if path.is_dir():
        return any(_is_meant(below.name.lower()) for below in names_below(path))
    name = path.name.lower()
    return name.endswith(ARCHIVE_SUFFIX) or (_is_meant(name) and _begins_with_version(path))


def _begins_with_version(path: Path) -> bool:
    try:
        with open_file(path, KIND.what) as file, gzip.GzipFile(fileobj=file) as unpacked:
            head = unpacked.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return len(head) == 4 and int.from_bytes(head, "little") <= _NEWEST_VERSION


def unpacked(packed: bytes, name: str) -> Iterator[bytes]:
    """Records of a gzip file, in pieces of any size. Raises DataError, which begins with `name`."""
    if not packed.startswith(_GZIP_MAGIC):
        raise DataError(f"{name}: begins with {packed[:4].hex() or 'nothing'}; expected gzip data (1f8b)")
    size = 0
    try:
        for piece in frames(io.BytesIO(packed), begin_gzip):
            size += len(piece)
            if size > LARGEST_GAME_BYTES:
                raise DataError(
                    f"{name}: more than {counted(LARGEST_GAME_BYTES, 'byte')} unpacked; expected the"
                    " records of one game"
                )
            yield piece
    except EOFError as error:
        raise DataError(f"{name}: damaged gzip data: it breaks off after {size:,} bytes") from error
    except unpacking_errors() as error:
        raise DataError(f"{name}: damaged gzip data after {size:,} bytes: {reason(error)}") from error


BLOCK_BYTES = 512
_LONGEST_NAME = 1 << 12
_LONGEST_EXTENSION = 1 << 16  # of extended headers, which are passed over
_MAGIC = slice(257, 262)
_FILE_KINDS = (b"0", b"\0")
_DIRECTORY = b"5"
_LONG_NAME = b"L"  # GNU: the content is the next member's name
_EXTENSIONS = (b"x", b"g")  # POSIX: times, owners, names beyond 255 bytes
_OTHER_KINDS = {
    b"1": "a link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    name: str
    size_bytes: int


class ArchiveReader:
    """Members of the archive in `stream`. `name` is the archive's in messages."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream = stream
        self._name = name
        self._offset = 0

    def members(self) -> Iterator[Member]:
        """The files. Each is read with `content`, or passed over, before the next is requested.

        Raises DataError for damage, for links and the like, and for names that lead out of a directory.
        """
        long_name = ""
        while (header := self._header()) is not None:
            begin = self._offset - BLOCK_BYTES
            kind, size = header[156:157], self._number(header, begin)
            name = long_name or _name(header)
            if kind == _LONG_NAME:
                long_name = _text(self._small(size, _LONGEST_NAME, "a name"))
                continue
            if kind in _EXTENSIONS:
                self._small(size, _LONGEST_EXTENSION, "an extended header")
                continue
            long_name = ""
            self._check(name, kind)
            if kind == _DIRECTORY:
                continue
            member = Member(name, size)
            end = self._offset + _padded(size)
            yield member
            if self._offset < end:
                self._skip(end - self._offset)

    def content(self, member: Member) -> bytes:
        """The bytes of the member that `members` gave last."""
        return self._read(member.size_bytes, member.name)

    def _check(self, name: str, kind: bytes) -> None:
        what = _OTHER_KINDS.get(kind)
        if what is not None:
            raise DataError(f"{self._name}: {quoted(name)} is {what}; expected files alone")
        if kind not in (*_FILE_KINDS, _DIRECTORY):
            raise DataError(f"{self._name}: {quoted(name)} is of kind {kind!r}; expected files alone")
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{self._name}: member {quoted(name)}; expected a name below the archive")

    def _header(self) -> bytes | None:
        """The next header; None at the end of the archive."""
        header = self._stream.read(BLOCK_BYTES)
        self._offset += len(header)
        if not header or header.count(0) == BLOCK_BYTES:
            return None
        if len(header) < BLOCK_BYTES:
            raise self._cut_off()
        if header[_MAGIC] != b"ustar" and _sum_of(header) != _octal(header[148:156]):
            raise DataError(f"{self._name}: no header of a tar archive at byte {self._offset - BLOCK_BYTES}")
        if _sum_of(header) != _octal(header[148:156]):
            raise DataError(
                f"{self._name}: damaged: the header at byte {self._offset - BLOCK_BYTES} has another checksum"
            )
        return header

    def _number(self, header: bytes, begin: int) -> int:
        size = _octal(header[124:136])
        if size is None:
            raise DataError(
                f"{self._name}: size {quoted(header[124:136])} in the header at byte {begin}; expected"
                " an octal number"
            )
        return size

    def _small(self, size: int, limit: int, what: str) -> bytes:
        if size > limit:
            raise DataError(
                f"{self._name}: {what} of {counted(size, 'byte')}; expected at most {limit:,} bytes"
            )
        return self._read(_padded(size), what)[:size]

    def _read(self, size: int, what: str) -> bytes:
        content = self._stream.read(size)
        self._offset += len(content)
        if len(content) < size:
            raise self._cut_off(what)
        return content

    def _skip(self, size: int) -> None:
        while size > 0:
            size -= len(self._read(min(size, 1 << 20), "the archive"))

    def _cut_off(self, what: str = "a header") -> DataError:
        return DataError(f"{self._name}: cut off within {quoted(what)}, after byte {self._offset}")


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _name(header: bytes) -> str:
    """As the header has it; POSIX may have put the first part of a long one elsewhere."""
    first = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{first}/{_text(header[:100])}" if first else _text(header[:100])


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    return int(digits, 8) if all(digit in b"01234567" for digit in digits) else None


def _sum_of(header: bytes) -> int:
    """The checksum of a header, which counts its own field as spaces."""
    return sum(header) - sum(header[148:156]) + 8 * ord(" ")
