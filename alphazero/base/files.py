"""Files that are whole or absent: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from alphazero.base.errors import DataError

CHUNK_BYTES = 1 << 20
OTHER_PACKINGS = (".bz2", ".zst", ".xz", ".zip", ".7z", ".rar")  # than .gz, which this program writes
_EPD = re.compile(r"\.epd(\.(gz|bz2|zst))?$", re.IGNORECASE)
_UNFINISHED_FILE = re.compile(r"\..+\.\d+\.tmp")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What the system refuses in the block names the file: by itself it does so only where one is opened."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write; `path` has all of it after the block, or what it had before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def remove_unfinished(directory: Path) -> None:
    """Remove the files that killed writers (see `replacing`) left; only the one writer may call this.

    Nothing else goes: no directory, no link, no file of another name.
    """
    for path in directory.glob(".*.tmp"):
        if _UNFINISHED_FILE.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


def open_regular(path: Path) -> IO[bytes]:
    """A file to read. Raises OSError, also for a pipe or a device, which could wait for ever."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_NONBLOCK)
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            os.close(descriptor)
            error = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(error, os.strerror(error) if error == errno.EISDIR else "no regular file", name)
        return descriptor

    return open(path, "rb", opener=opener)


def read_at_most(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file. Raises OSError, and ValueError for a larger file."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"over {most_bytes:,} bytes")
    return content


def read_text(path: Path) -> str:
    """The text of a regular file; bytes that are no UTF-8 become U+FFFD. Raises OSError."""
    with open_regular(path) as file:
        return file.read().decode("utf-8", errors="replace")


def complete_lines(path: Path) -> list[str]:
    """Lines of a text file whose writer may have been killed: all but an unfinished last one.

    One damaged line does not cost the others (see read_text). Raises OSError.
    """
    return read_text(path).split("\n")[:-1] if path.exists() else []


def cut_unfinished_line(path: Path) -> None:
    """Remove the beginning of a line that a killed writer left at the end of a file."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        kept = file.seek(0, os.SEEK_END)
        while kept > 0:
            first = max(0, kept - CHUNK_BYTES)
            file.seek(first)
            newline = file.read(kept - first).rfind(b"\n")
            if newline >= 0:
                kept = first + newline + 1
                break
            kept = first
        file.truncate(kept)


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - anything json can hold
    """`value` as indented JSON, whole or absent."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=1) + "\n").encode())


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())


def resolved(path: Path) -> Path:
    """The path without symbolic links; a loop of links stays, so that the system names it where it is opened.

    Path.resolve() raises RuntimeError for a loop in Python 3.11.
    """
    return Path(os.path.realpath(path))


def given_path(text: str, flag: str) -> Path:
    """The path that a user gave as `flag`. Raises DataError for what is no path; nothing is not `.`."""
    if not text or "\0" in text:
        raise DataError(f"{flag} {text!r}: expected the path of a file or directory")
    return Path(text)


def plain_path(text: str, flag: str, example: str) -> Path:
    """As given_path, of a file that plain text is written to. Raises DataError for a packed file's name."""
    path = given_path(text, flag)
    if path.name.lower().endswith((".gz", *OTHER_PACKINGS)):
        raise DataError(f"{flag} {text}: expected a plain file, as {example}")
    return path


def refuse_positions(path: Path) -> None:
    """Raise DataError where games are expected and the file's name is that of positions (EPD)."""
    if _EPD.search(path.name) and not path.is_dir():
        raise DataError(
            f"{path}: EPD has positions and no games; expected PGN (`alphazero match --openings "
            f"{shlex.quote(str(path))} --pgn-out games.pgn` plays games from these positions)"
        )


def fsync_file(path: Path) -> None:
    """Make a file's content survive a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def fsync_directory(path: Path) -> None:
    """Make renames within `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
