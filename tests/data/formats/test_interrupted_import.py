"""Imports that are interrupted, killed, short of disk or two at a time leave no half store behind."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alphazero.base.errors import DataError
from alphazero.data.formats.importer import ImportReport
from alphazero.data.formats.working_directory import WorkingDirectory
from tests.support.data.pgn_sources import content, run


class BrokenError(Exception):
    """Stands for the moment at which the machine stopped."""


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, at_call: int, error: Callable[[], BaseException]
) -> Iterator[list[str]]:
    """Make the at_call-th durable step (fsync, replace, rename, mkdir) raise; yields the steps done."""
    steps: list[str] = []

    def wrap(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def step(*args: object, **kwargs: object) -> object:
            steps.append(name)
            if len(steps) == at_call:
                raise error()
            return original(*args, **kwargs)

        patch.setattr(owner, name, step)

    with monkeypatch.context() as patch:
        wrap(os, "fsync")
        for name in ("replace", "rename", "mkdir"):
            wrap(Path, name)
        yield steps


def count_steps(sources: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    with failing(monkeypatch, 0, BrokenError) as steps:
        run(sources, store)
    return len(steps)


def test_interrupted_at_any_step_it_leaves_nothing_and_starts_again(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    num_steps = count_steps(sources, tmp_path / "wanted", monkeypatch)
    wanted = content(tmp_path / "wanted")
    assert num_steps > 15
    for at_call in range(1, num_steps + 1):
        store = tmp_path / f"store-{at_call}"
        with failing(monkeypatch, at_call, BrokenError), pytest.raises(BrokenError):
            run(sources, store)
        assert not WorkingDirectory(store).path.exists() or at_call <= 4  # before anything was written
        run(sources, store, workers=1, chunk_bytes=at_call * 37)
        assert content(store) == wanted
        assert not WorkingDirectory(store).path.exists()


def test_every_failing_write_is_one_error_and_the_next_import_succeeds(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    num_steps = count_steps(sources, tmp_path / "wanted", monkeypatch)
    wanted = content(tmp_path / "wanted")
    for at_call in range(1, num_steps + 1):
        store = tmp_path / f"store-{at_call}"
        full = OSError(errno.ENOSPC, "No space left on device")
        with (
            failing(monkeypatch, at_call, lambda: full),  # noqa: B023
            pytest.raises(DataError, match="No space left"),
        ):
            run(sources, store)
        run(sources, store)
        assert content(store) == wanted


def test_a_full_disk_is_one_error_and_the_next_import_succeeds(sources: Path, tmp_path: Path):
    run(sources, tmp_path / "wanted")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 10, 150, 1000, 4000):
        store = tmp_path / f"store-{limit}"
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(DataError, match="File too large"):
                run(sources, store)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not store.exists()
        run(sources, store)
        assert content(store) == content(tmp_path / "wanted")


KILLED = """
import os, signal, sys
from pathlib import Path
from alphazero.data.formats.importer import import_games
count = 0
def wrap(owner, name):
    original = getattr(owner, name)
    def step(*args, **kwargs):
        global count
        count += 1
        if count == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(owner, name, step)
wrap(os, "fsync")
for name in ("replace", "rename", "mkdir"):
    wrap(Path, name)
import_games([Path(sys.argv[1])], Path(sys.argv[2]), workers=2, shard_limits=(40, 250))
"""


def test_what_a_killed_import_left_is_removed_by_the_next(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    num_steps = count_steps(sources, tmp_path / "wanted", monkeypatch)
    for at_call in (2, num_steps // 3, num_steps // 2, num_steps - 3, num_steps - 1, num_steps):
        store = tmp_path / f"store-{at_call}"
        killed = subprocess.run([sys.executable, "-c", KILLED, sources, store, str(at_call)], check=False)
        assert killed.returncode == -signal.SIGKILL
        run(sources, store)
        assert content(store) == content(tmp_path / "wanted")
        assert not WorkingDirectory(store).path.exists()
    assert "an interrupted import" in capsys.readouterr().err


def test_two_imports_of_one_store_do_not_mix(sources: Path, tmp_path: Path):
    work = WorkingDirectory(tmp_path / "store")
    with (
        work.locked(wait=False),
        pytest.raises(DataError, match="another import"),
    ):
        run(sources, tmp_path / "store")
    assert run(sources, tmp_path / "store").manifest.games == 90


def test_imports_that_wait_find_the_store_of_the_first(sources: Path, tmp_path: Path):
    reports: list[ImportReport] = []

    def work() -> None:
        reports.append(run(sources, tmp_path / "store", wait=True, workers=1))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({report.manifest.sha256 for report in reports}) == 1
    assert sorted(report.was_there for report in reports) == [False] + [True] * 5
