"""Files that are whole or absent: temporary name, fsync, rename, fsync of the directory."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from alphazero.base.errors import DataError

CHUNK_BYTES = 1 << 20
_UNFINISHED_FILE = re.compile(r"\..+\.\d+\.tmp")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write; `path` has all of it after the block, or what it had before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
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


def complete_lines(path: Path) -> list[str]:
    """Lines of a text file whose writer may have been killed: all but an unfinished last one.

    Bytes that are no UTF-8 become U+FFFD, so that one damaged line does not cost the others.
    """
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []


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


def given_path(text: str, flag: str) -> Path:
    """The path that a user gave as `flag`. Raises DataError for what is no path; nothing is not `.`."""
    if not text or "\0" in text:
        raise DataError(f"{flag} {text!r}: expected the path of a file or directory")
    return Path(text)


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
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
