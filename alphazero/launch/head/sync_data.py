"""Data from the head to hosts that lack it, over the job's own ssh: file by file, verified before it counts.

The head names files with sizes and digests, the host answers which it lacks, a tar stream of those follows.
Each file arrives under a temporary name, is hashed, flushed and renamed; a store's manifest comes last, so
that an interrupted transfer leaves no store, and the next one sends the files that are missing.
The host's side is this module as a program.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from alphazero.base.errors import AlphaZeroError, LaunchError
from alphazero.base.files import CHUNK_BYTES, replacing, sha256_of
from alphazero.base.log import error_line
from alphazero.launch.head.remote import MOST_OUTPUT_BYTES, kill_group, start_there
from alphazero.launch.plan import programs
from alphazero.launch.plan.launch_plan import Remote

MARK = "alphazero-sync "
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FileEntry:
    """A file of the data: path as on the head, absolute."""

    path: str
    size_bytes: int
    sha256: str


def data_digest(path: Path) -> str:
    """What names the content of data: a store's manifest, else names and sizes of the files; "" for none.

    A manifest holds the sha256 of its shards. Raw files are hashed when they are sent, not to compare them.
    """
    try:
        if (path / MANIFEST).is_file():
            return hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
        files = [[str(file.relative_to(path)), file.stat().st_size] for file in files_of(path)]
    except OSError:
        return ""
    return hashlib.sha256(json.dumps(files).encode()).hexdigest() if files else ""


def files_of(path: Path) -> list[Path]:
    """The files of some data, a store's manifest last; none where nothing is."""
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return sorted(files, key=lambda file: file == path / MANIFEST)


def describe(paths: Sequence[Path]) -> list[FileEntry]:
    """All files below paths, hashed."""
    files = [file for path in paths for file in files_of(path.absolute())]
    return [FileEntry(str(file), file.stat().st_size, sha256_of(file)) for file in files]


def send(paths: Sequence[Path], remote: Remote) -> int:
    """Send what `remote` lacks of the data at paths; the bytes that were sent.

    Raises LaunchError naming the host where it cannot take it.
    """
    entries = describe(paths)
    process = start_there(remote, programs.words_of(programs.DATA_RECEIVER), stderr=subprocess.STDOUT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        # The other side closes when it cannot continue: its output has the reason.
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            stream.write((json.dumps([asdict(entry) for entry in entries]) + "\n").encode())
            stream.flush()
            lacking = read_answer(process.stdout, remote)
            wanted = [entry for entry in entries if entry.path in lacking]
            write_archive(wanted, stream)
        received = read_answer(process.stdout, remote)
    finally:
        kill_group(process)
    if len(received) != len(wanted):
        raise LaunchError(f"{remote.name}: took {len(received)} of {len(wanted)} files; expected all")
    return sum(entry.size_bytes for entry in wanted)


def read_answer(output: IO[bytes], remote: Remote) -> list[str]:
    """The host's next list of files, after whatever a login script of it prints; LaunchError without one."""
    last = ""
    while line := output.readline(MOST_OUTPUT_BYTES).decode(errors="replace"):
        if line.startswith(MARK):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                return [str(item) for item in json.loads(line.removeprefix(MARK))]
        last = line.strip() or last
    reason = last.removeprefix("alphazero: error: ") or "no answer"
    raise LaunchError(f"--sync-data: {remote.name}: {reason}")


def write_archive(entries: Sequence[FileEntry], stream: IO[bytes]) -> None:
    """The files as 0, 1, ...; of links the content, also of hard ones to a file before."""
    with tarfile.open(fileobj=stream, mode="w|", dereference=True) as archive:
        for number, entry in enumerate(entries):
            archive.add(entry.path, arcname=str(number), recursive=False)


def lacking_here(entries: Sequence[FileEntry]) -> list[str]:
    """Which files this host does not have as they should be."""

    def is_here(entry: FileEntry) -> bool:
        path = Path(entry.path)
        has_size = path.is_file() and path.stat().st_size == entry.size_bytes
        return has_size and sha256_of(path) == entry.sha256

    return [entry.path for entry in entries if not is_here(entry)]


def receive(entries: Sequence[FileEntry], stream: IO[bytes]) -> list[str]:
    """Write the files of a tar stream, named 0, 1, ... as in entries; their paths.

    Raises LaunchError for one whose content is not what was announced.
    """
    received: list[str] = []
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry, member in zip(entries, archive, strict=False):
            source = archive.extractfile(member)
            if source is None or member.name != str(len(received)):
                raise LaunchError(f"{entry.path}: the stream holds {member.name!r}; expected a file")
            _write(entry, source)
            received.append(entry.path)
    return received


def _write(entry: FileEntry, source: IO[bytes]) -> None:
    path = Path(entry.path)
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != entry.sha256:
                raise LaunchError(f"{path}: arrived with another sha256; expected {entry.sha256[:12]}...")
    except OSError as error:
        raise LaunchError(f"{path}: cannot be written: {error.strerror}") from error


def main() -> int:
    """The host's side: lists what it lacks of the files that the head has, and takes them."""
    entries = [FileEntry(**row) for row in json.loads(sys.stdin.buffer.readline())]
    try:
        lacking = lacking_here(entries)
        print(MARK + json.dumps(lacking), flush=True)
        received = receive([entry for entry in entries if entry.path in lacking], sys.stdin.buffer)
    except (AlphaZeroError, tarfile.TarError) as error:
        print(error_line(str(error)), file=sys.stderr)
        return 2
    print(MARK + json.dumps(received))
    return 0


if __name__ == "__main__":
    sys.exit(main())
