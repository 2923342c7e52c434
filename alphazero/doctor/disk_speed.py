"""How fast the disk of the runs is: what a checkpoint costs to write, and a store to read."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SIZE_BYTES = 64 << 20
CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class DiskSpeed:
    """In bytes per second; directory: the nearest one that exists above where runs are written."""

    directory: str
    write: float
    read: float


def measure_disk(directory: Path, size_bytes: int = SIZE_BYTES) -> DiskSpeed:
    """Write a file that is gone afterwards, flushed to the disk, and read it with the page cache dropped.

    Raises OSError where nothing can be written.
    """
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    chunk = os.urandom(CHUNK_BYTES)
    with tempfile.TemporaryFile(dir=existing, buffering=0) as file:
        began = time.perf_counter()
        for _ in range(max(1, size_bytes // CHUNK_BYTES)):
            file.write(chunk)
        os.fsync(file.fileno())
        written = time.perf_counter()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        size = file.seek(0, os.SEEK_CUR)
        file.seek(0)
        begun = time.perf_counter()
        while file.read(CHUNK_BYTES):
            pass
        ended = time.perf_counter()
    return DiskSpeed(str(existing), size / (written - began), size / (ended - begun))
