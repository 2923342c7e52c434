"""One writer a directory: locks between processes, their holders, file systems without locks."""

import dataclasses
import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from alphazero.base.errors import BusyError
from alphazero.machine import lock as locks
from alphazero.machine.lock import (
    HELD_FILE,
    LOCK_FILE,
    DirectoryLock,
    boot_id,
    holder_of,
    process_started,
    this_process,
)
from alphazero.run.directory import RunDirectory, require_free
from tests.support.paths import REPOSITORY

HOLD = """
import sys, time
from pathlib import Path
from alphazero.machine.lock import DirectoryLock
lock = DirectoryLock.acquire(Path(sys.argv[1]), "training", print)
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def hold(directory: Path, seconds: float = 60.0) -> subprocess.Popen[str]:
    """Another process that holds the lock of `directory`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory), str(seconds)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that knows no locks."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_writer_is_told_which_process_on_which_host_holds_the_directory(tmp_path):
    process = hold(tmp_path)
    try:
        with pytest.raises(BusyError) as caught:
            DirectoryLock.acquire(tmp_path, "pruning", print)
        told = str(caught.value)
        assert f"training, process {process.pid} on {socket.gethostname()}, since 2" in told
        assert str(tmp_path) in told
        holder = holder_of(tmp_path)
        assert holder is not None and holder.pid == process.pid
    finally:
        process.kill()
        process.wait()


def test_a_writer_that_has_locked_and_not_yet_signed_is_named_all_the_same(tmp_path):
    with (tmp_path / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def sign() -> None:
            file.write(json.dumps(dataclasses.asdict(this_process("training"))))
            file.flush()

        signature = threading.Timer(0.3, sign)
        signature.start()
        with pytest.raises(BusyError, match=f"training, process {os.getpid()} on "):
            DirectoryLock.acquire(tmp_path, "pruning", print)
        signature.join()


def test_a_killed_writer_holds_nobody_off(tmp_path):
    process = hold(tmp_path)
    process.kill()
    process.wait()
    assert holder_of(tmp_path) is None
    with DirectoryLock.acquire(tmp_path, "training", print):
        holder = holder_of(tmp_path)
        assert holder is not None and holder.pid == os.getpid()


def test_a_restart_waits_for_an_orphan_and_says_so(tmp_path):
    process = hold(tmp_path, seconds=1.0)
    said: list[str] = []
    began = time.monotonic()
    with DirectoryLock.acquire(tmp_path, "training", said.append, wait_s=30.0):
        assert time.monotonic() - began < 25
    assert len(said) == 1 and "waiting up to 30 s for training, process" in said[0]
    process.wait()


def test_a_released_directory_can_be_locked_again_and_names_nobody(tmp_path):
    DirectoryLock.acquire(tmp_path, "training", print).release()
    assert holder_of(tmp_path) is None
    assert (tmp_path / LOCK_FILE).read_bytes() == b""
    DirectoryLock.acquire(tmp_path, "training", print).release()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        DirectoryLock.acquire(tmp_path, "training", print)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"{}", b'{"pid": "x"}', b"[" * 5000, b"7", b'{"pid": Infinity}']
)
def test_a_damaged_lock_file_is_no_hindrance(tmp_path, content):
    (tmp_path / LOCK_FILE).write_bytes(content)
    (tmp_path / HELD_FILE).write_bytes(content)
    assert holder_of(tmp_path) is None
    DirectoryLock.acquire(tmp_path, "training", print).release()


def test_without_locks_of_the_file_system_a_file_stands_for_one_and_that_is_said(tmp_path, no_locks):
    said: list[str] = []
    lock = DirectoryLock.acquire(tmp_path, "training", said.append)
    assert len(said) == 1 and "has no locks" in said[0]
    with pytest.raises(BusyError, match=f"training, process {os.getpid()} on"):
        DirectoryLock.acquire(tmp_path, "training", said.append)
    lock.release()
    assert not (tmp_path / HELD_FILE).exists()
    DirectoryLock.acquire(tmp_path, "training", said.append).release()


@pytest.mark.parametrize(
    "change", [{"pid": 2**22 - 3, "started": 5}, {"boot": "another boot"}, {"started": 1}], ids=str
)
def test_without_locks_what_a_dead_process_of_this_host_left_is_taken_away(tmp_path, no_locks, change):
    record = {**vars(this_process("training")), **change}
    (tmp_path / HELD_FILE).write_text(json.dumps(record))
    DirectoryLock.acquire(tmp_path, "training", lambda text: None).release()


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"namespace": "pid:[1]"}], ids=str)
def test_without_locks_a_process_that_cannot_be_seen_from_here_counts_as_alive(tmp_path, no_locks, change):
    record = {**vars(this_process("training")), "pid": 2**22 - 3, **change}
    (tmp_path / HELD_FILE).write_text(json.dumps(record))
    named = f"process 4194301 on .*; if that process has died, remove {tmp_path / HELD_FILE}$"
    with pytest.raises(BusyError, match=named):
        DirectoryLock.acquire(tmp_path, "training", lambda text: None)
    with pytest.raises(BusyError, match=named):
        require_free(RunDirectory(tmp_path))


def test_without_locks_a_file_that_names_nobody_is_named_itself(tmp_path, no_locks):
    (tmp_path / HELD_FILE).write_text("")  # its host died between making and signing it
    with pytest.raises(BusyError, match=f"another process.*has died, remove {tmp_path / HELD_FILE}$"):
        DirectoryLock.acquire(tmp_path, "training", lambda text: None)


def test_other_faults_of_the_file_system_are_not_taken_for_missing_locks(tmp_path, monkeypatch):
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output"):
        DirectoryLock.acquire(tmp_path, "training", print)


def test_a_process_is_known_by_its_start_and_a_machine_by_its_boot():
    assert process_started(os.getpid()) == process_started(os.getpid()) > 0
    assert process_started(2**22 - 3) == -1
    assert len(boot_id()) == 36
