"""Files of lc0's training data: found, distinguished from PGN, and their records unpacked.

The data is published as tar archives: members are read in order, nothing is extracted. Python
reads one header at a time, and no more, because what it claims must not decide how much is read.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from alphazero.base.errors import DataError
from alphazero.base.text import counted, quoted
from alphazero.data.formats.files import (
    Kind,
    begin_gzip,
    names_below,
    open_file,
    unpacked,
)

PACKED_ARCHIVES = (".tar.gz", ".tgz")
ARCHIVES = (".tar", *PACKED_ARCHIVES)
GAME_SUFFIX = ".gz"
LARGEST_GAME_BYTES = 1 << 26  # unpacked: some 8,000 positions
_GZIP_MAGIC = b"\x1f\x8b"
_NEWEST_VERSION = 255  # a record begins with its version as u32; no text begins with three zero bytes


def _is_meant(name: str) -> bool:
    """By a name in lower case: no PGN, no weights."""
    return name.endswith((GAME_SUFFIX, *ARCHIVES)) and not name.endswith((".pgn.gz", ".pb.gz"))


KIND = Kind("lc0 training data", "lc0 training data", ", ".join((GAME_SUFFIX, *ARCHIVES)), _is_meant, True)


def lc0_in(path: Path) -> Path | None:
    """The first file of lc0's training data in a path that a user named: by names, a file by its head."""
    if path.is_dir():
        return next((below for below in names_below(path) if _is_meant(below.name.lower())), None)
    name = path.name.lower()
    return path if name.endswith(ARCHIVES) or (_is_meant(name) and _begins_with_version(path)) else None


def _begins_with_version(path: Path) -> bool:
    try:
        with open_file(path, KIND.what) as file, gzip.GzipFile(fileobj=file) as records:
            head = records.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return len(head) == 4 and int.from_bytes(head, "little") <= _NEWEST_VERSION


def records_in(packed: bytes, name: str) -> Iterator[bytes]:
    """Records of a gzip file, in pieces of any size. Raises DataError, which begins with `name`."""
    if not packed.startswith(_GZIP_MAGIC):
        raise DataError(f"{name}: begins with {packed[:4].hex() or 'nothing'}; expected gzip data (1f8b)")
    size = 0
    for piece in unpacked(io.BytesIO(packed), begin_gzip, name, "gzip", "records"):
        size += len(piece)
        if size > LARGEST_GAME_BYTES:
            raise DataError(
                f"{name}: more than {counted(LARGEST_GAME_BYTES, 'byte')} unpacked; expected the"
                " records of one game"
            )
        yield piece


_LONGEST_NAME = 1 << 12
_LONGEST_EXTENSION = 1 << 16  # of extended headers, which are passed over


class _UnpackedFile(io.RawIOBase):
    """What a gzip file holds, unpacked as it is read. Reading raises DataError."""

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self._pieces = unpacked(packed, begin_gzip, name, "gzip", "an archive")
        self._piece = memoryview(b"")  # what is left of the newest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self._piece or memoryview(next(self._pieces, b""))
        size = min(len(piece), len(buffer))
        buffer[:size], self._piece = piece[:size], piece[size:]
        return size


class ArchiveReader:
    """Members of the archive in `stream`. `name` is the archive's in messages."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        is_packed = name.lower().endswith(PACKED_ARCHIVES)
        self._stream = io.BufferedReader(_UnpackedFile(stream, name)) if is_packed else stream
        self._name = name
        self._offset = 0

    def members(self) -> Iterator[tarfile.TarInfo]:
        """The files. Each is read with `content`, or passed over, before the next is requested.

        Raises DataError for damage, for links and the like, and for names that lead out of a directory.
        """
        long_name = ""
        while (member := self._header()) is not None:
            if member.type == tarfile.GNUTYPE_LONGNAME:  # the content is the next member's name
                content = self._small(member.size, _LONGEST_NAME, "a name")
                long_name = content.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
                continue
            if member.type in (tarfile.XHDTYPE, tarfile.XGLTYPE):  # times, owners, names beyond 255 bytes
                self._small(member.size, _LONGEST_EXTENSION, "an extended header")
                continue
            member.name, long_name = long_name or member.name, ""
            self._check(member)
            if member.isdir():
                continue
            end = self._offset + _padded(member.size)
            yield member
            while self._offset < end:
                self._read(min(end - self._offset, 1 << 20), "the archive")

    def content(self, member: tarfile.TarInfo) -> bytes:
        """The bytes of the member that `members` gave last."""
        return self._read(member.size, member.name)

    def _check(self, member: tarfile.TarInfo) -> None:
        name = member.name
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            is_link = member.islnk() or member.issym()
            what = "a link" if is_link else "a device" if member.isdev() else f"of kind {member.type!r}"
            raise DataError(f"{self._name}: {quoted(name)} is {what}; expected files alone")
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise DataError(f"{self._name}: member {quoted(name)}; expected a name below the archive")

    def _header(self) -> tarfile.TarInfo | None:
        """The next header; None at the end of the archive."""
        begin = self._offset
        block = self._stream.read(tarfile.BLOCKSIZE)
        self._offset += len(block)
        if block in (b"", bytes(tarfile.BLOCKSIZE)):
            return None
        if len(block) < tarfile.BLOCKSIZE:
            raise self._cut_off()
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
        except tarfile.HeaderError as error:
            raise DataError(f"{self._name}: no header of a tar archive at byte {begin}: {error}") from error
        if header.size < 0:
            raise DataError(f"{self._name}: size {header.size} at byte {begin}; expected 0 or more")
        return header

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

    def _cut_off(self, what: str = "a header") -> DataError:
        return DataError(f"{self._name}: cut off within {quoted(what)}, after byte {self._offset}")


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
