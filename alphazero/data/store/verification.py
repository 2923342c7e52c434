"""Do shards match their manifest? Their sha256, beside the work that reads them, once a host.

What was found good is remembered in the user's cache by device, inode, size and times of the file, so that
the next start reads nothing; a store may be read-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

from alphazero.base.errors import DataError
from alphazero.base.files import CHUNK_BYTES, complete_lines, open_regular
from alphazero.base.text import counted
from alphazero.data.store.store import ShardView, damaged, named_faults

BEFORE_STEP_ONE_S = 10.0
# A file may be written to twice within one tick of its clock: what is that new is not remembered.
_SETTLED_S = 2.0


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """A file as it was read: another content has another identity. The times are the last two."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def default_cache_directory() -> Path:
    """$XDG_CACHE_HOME/alphazero, else ~/.cache/alphazero."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path("~/.cache").expanduser()) / "alphazero"


class KnownDigests:
    """Digests that this host's user has computed before: a line a file. Where it cannot be kept, nothing is
    remembered, and the files are read again next time.
    """

    def __init__(self, directory: Path | None = None) -> None:
        directory = directory or default_cache_directory()
        host = "".join(c if c.isalnum() or c in "-." else "_" for c in platform.node()) or "host"
        self._path = directory / f"verified-{host}.jsonl"
        self._known = self._load()

    def of(self, path: Path, beat: Callable[[], None] = lambda: None) -> str:
        """The sha256 of a file, which is read unless it is known. beat: called again and again.

        Raises DataError.
        """
        with named_faults("read", path), open_regular(path) as file:
            identity = _identity(os.fstat(file.fileno()))
            if identity in self._known:
                return self._known[identity]
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                beat()
            if identity == _identity(os.fstat(file.fileno())):
                self._add(identity, digest.hexdigest())
            return digest.hexdigest()

    def remember(self, path: Path, mtime_ns: int, sha256: str) -> None:
        """The digest of a file that was last changed then, computed elsewhere."""
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_mtime_ns == mtime_ns:
                self._add(_identity(status), sha256)

    def _add(self, identity: tuple[int, ...], sha256: str) -> None:
        if time.time_ns() - max(identity[-2:]) <= _SETTLED_S * 1e9:
            return
        self._known[identity] = sha256
        line = json.dumps([*identity, sha256]) + "\n"
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "ab", buffering=0) as file:
                file.write(line.encode())

    def _load(self) -> dict[tuple[int, ...], str]:
        known: dict[tuple[int, ...], str] = {}
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = complete_lines(self._path)
        for line in lines:
            try:
                *numbers, sha256 = json.loads(line)
                known[tuple(map(int, numbers))] = str(sha256)
            except (ValueError, TypeError, RecursionError, OverflowError):
                continue  # damaged: that file is read again
        return known


class Verification:
    """Reads shards on a thread and compares their sha256 with their manifests; a context manager.

    wait() before anything is published.
    """

    def __init__(
        self,
        shards: Sequence[tuple[ShardView, str]],
        *,
        cache: Path | None = None,
        first_s: float = BEFORE_STEP_ONE_S,
    ) -> None:
        """Begin, and wait up to `first_s` for the end. Raises DataError for what was found by then.

        shards: each with the sha256 that is expected of it. cache: where digests are remembered; without it,
        default_cache_directory().
        """
        self._stopping = threading.Event()
        self._end: Future[None] = Future()
        arguments = (shards, cache)
        threading.Thread(target=self._run, args=arguments, name="alphazero-verify", daemon=True).start()
        with contextlib.suppress(FutureTimeoutError):
            self._end.result(first_s)

    @property
    def is_done(self) -> bool:
        """All was read, or a fault was found."""
        return self._end.done()

    def wait(self) -> None:
        """Return when every shard was found to be its manifest's. Raises DataError if one is not."""
        self._end.result()

    def close(self) -> None:
        """End the thread, whatever it has read."""
        self._stopping.set()
        self._end.exception()

    def __enter__(self) -> Verification:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, shards: Sequence[tuple[ShardView, str]], cache: Path | None) -> None:
        try:
            verified = KnownDigests(cache)
            for view, expected in shards:
                with named_faults("read", view.path):
                    self._verify(view, expected, verified)
        except BaseException as error:
            self._end.set_exception(error)  # raised where it is waited for
        else:
            self._end.set_result(None)

    def _check_stopping(self) -> None:
        if self._stopping.is_set():
            raise DataError("its verification was ended")

    def _verify(self, view: ShardView, expected: str, verified: KnownDigests) -> None:
        self._check_stopping()
        if view.mapping is None:
            return
        if (size_bytes := view.path.stat().st_size) != len(view.mapping):
            raise DataError(
                f"{view.path}: {counted(size_bytes, 'byte')}, {len(view.mapping):,} when it was"
                " opened: it was changed while in use; expected a store that never changes"
            )
        if (digest := verified.of(view.path, self._check_stopping)) != expected:
            fault = damaged(view.path, digest, expected)
            raise DataError(f"{fault} (--no-verify-data trains on it as it is)")
