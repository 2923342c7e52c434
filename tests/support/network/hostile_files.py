"""Weights files that mean harm: small archives that would fill the memory, numbers that are none."""

import copy
import resource
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


@contextmanager
def memory_bounded(extra_bytes: int = 1 << 30) -> Iterator[None]:
    """In the block the process may map `extra_bytes` more than now: what wants more gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def rewritten(
    source: Path,
    target: Path,
    change: Callable[[str, bytes], bytes] = lambda _, data: data,
    compression: int = zipfile.ZIP_STORED,
) -> None:
    """A copy of a .pt with every member passed through `change`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for member in old.infolist():
            new.writestr(member.filename, change(member.filename, old.read(member)))


def with_shared_members(source: Path, target: Path, count: int) -> None:
    """A copy of a .pt whose directory has `count` more members, all on the bytes of its largest one."""
    rewritten(source, target)
    with zipfile.ZipFile(target, "a") as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
        for number in range(count):
            more = copy.copy(largest)
            more.filename = f"archive/data/more{number}"
            archive.filelist.append(more)
            archive.NameToInfo[more.filename] = more
        archive._didModify = True


class Allocates:
    """A pickle that asks torch's reader, which allows it, for a terabyte."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (1 << 40,)


def a_huge_view() -> torch.Tensor:
    """Four bytes that show themselves as 16 GB."""
    return torch.zeros(1).expand(1 << 32)
