"""Files of lc0's training data: found below what a user names, told from PGN, and their records unpacked."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from isal import igzip_lib

from alphazero.data.importing.files import (
    GZIP_ERROR,
    TEXT_BLOCK_BYTES,
    Kind,
    Source,
    ignore,
    names_below,
    open_file,
)
from alphazero.errors import DataError
from alphazero.text import counted, printable, reason

ARCHIVE_SUFFIX = ".tar"
GAME_SUFFIX = ".gz"
LARGEST_GAME_BYTES = 1 << 26  # unpacked: some 8,000 positions
_READ_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_NEWEST_VERSION = 255  # a record begins with its version as u32; no text begins with three zero bytes


def _is_meant(name: str) -> bool:
    """By a name in lower case: no PGN, no weights."""
    return name.endswith((GAME_SUFFIX, ARCHIVE_SUFFIX)) and not name.endswith((".pgn.gz", ".pb.gz"))


KIND = Kind("lc0 training data", "lc0 training data", f"{GAME_SUFFIX}, {ARCHIVE_SUFFIX}", _is_meant)


def find_sources(arguments: Sequence[Path], say: Callable[[str], None] = ignore) -> list[Source]:
    """A source for each path that a user named: a file, or a directory with all the files below it.

    What is below a directory and no file (a pipe, a device) is passed over, and `say` told of it. Raises
    DataError for what cannot be read or is named twice.
    """
    sources = []
    names = Counter(printable(argument.resolve().name) for argument in arguments)
    seen: set[Path] = set()
    for argument in arguments:
        files = _files_below(argument, say) if argument.is_dir() else [argument]
        if not files:
            raise DataError(
                f"{argument}: no {KIND.files} below this directory; expected names in {KIND.expected}"
            )
        size_bytes = mtime_ns = 0
        for path in files:
            if path.resolve() in seen:
                raise DataError(f"{path}: given twice; its games would count double")
            seen.add(path.resolve())
            with open_file(path, KIND.what) as file:
                status = os.fstat(file.fileno())
            size_bytes += status.st_size
            mtime_ns = max(mtime_ns, status.st_mtime_ns)
        name = printable(argument.resolve().name)
        sources.append(
            Source(argument, name if names[name] == 1 else printable(argument), size_bytes, mtime_ns)
        )
    return sources


def files_of(source: Source) -> list[Path]:
    """The files of a source, in their order. Raises DataError."""
    return _files_below(source.path, ignore) if source.path.is_dir() else [source.path]


def sha256_of_source(source: Source) -> str:
    """Hex digest of all its files' content, one after the other. Raises DataError."""
    digest = hashlib.sha256()
    for path in files_of(source):
        with open_file(path, KIND.what) as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    return digest.hexdigest()


def _files_below(directory: Path, say: Callable[[str], None]) -> list[Path]:
    files = []
    for path in names_below(directory):
        if not _is_meant(path.name.lower()):
            continue
        if path.is_file():
            files.append(path)
        else:
            say(f"passed over: {path}: this is no file; expected a file of {KIND.what}")
    return files


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
        while packed:
            frame = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
            piece = frame.decompress(packed, TEXT_BLOCK_BYTES)
            while True:
                size += len(piece)
                if size > LARGEST_GAME_BYTES:
                    raise DataError(
                        f"{name}: more than {counted(LARGEST_GAME_BYTES, 'byte')} unpacked; expected the"
                        " records of one game"
                    )
                yield piece
                if frame.eof:
                    break
                if frame.needs_input:
                    raise DataError(f"{name}: damaged gzip data: it breaks off after {size:,} bytes")
                piece = frame.decompress(b"", TEXT_BLOCK_BYTES)
            packed = frame.unused_data.lstrip(b"\0")  # tape drives pad with zeros
    except GZIP_ERROR as error:
        raise DataError(f"{name}: damaged gzip data after {size:,} bytes: {reason(error)}") from error
