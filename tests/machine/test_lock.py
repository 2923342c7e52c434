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

from alphazero.base.errors import BusyError, DataError
from alphazero.machine.lock import (
    LOCK_FILE,
    Holder,
    holder_of,
    only_writer,
)
from tests.support.paths import REPOSITORY

HOLD = """
import sys, time
from pathlib import Path
from alphazero.machine.lock import only_writer
with only_writer(Path(sys.argv[1]), "training", print):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def locked(directory: Path, say=print, wait_s: float = 0.0):
    return only_writer(directory, "training", say, wait_s)


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


def test_a_second_writer_is_told_which_process_on_which_host_holds_the_directory(tmp_path):
    process = hold(tmp_path)
    try:
        with pytest.raises(BusyError) as caught, locked(tmp_path):
            pass
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
            file.write(json.dumps(dataclasses.asdict(Holder("here", 7, "pruning", "noon"))))
            file.flush()

        signature = threading.Timer(0.3, sign)
        signature.start()
        with pytest.raises(BusyError, match=r"pruning.* 7 .*here.*noon"), locked(tmp_path):
            pass
        signature.join()


def test_a_killed_writer_holds_nobody_off(tmp_path):
    process = hold(tmp_path)
    process.kill()
    process.wait()
    assert holder_of(tmp_path) is None
    with locked(tmp_path):
        holder = holder_of(tmp_path)
        assert holder is not None and holder.pid == os.getpid()


def test_a_restart_waits_for_an_orphan_and_says_so(tmp_path):
    process = hold(tmp_path, seconds=4.0)
    said: list[str] = []
    began = time.monotonic()
    with locked(tmp_path, said.append, wait_s=30.0):
        assert time.monotonic() - began < 25
    assert len(said) == 1 and "30 s" in said[0] and str(process.pid) in said[0]
    process.wait()


def test_a_released_directory_can_be_locked_again_and_names_nobody(tmp_path):
    for _ in range(2):
        with locked(tmp_path):
            assert holder_of(tmp_path) is not None
        assert holder_of(tmp_path) is None
        assert not list(tmp_path.iterdir())


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"), locked(tmp_path):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"{}", b'{"pid": "x"}', b"[" * 5000, b"7", b'{"pid": Infinity}']
)
def test_a_damaged_lock_file_is_no_hindrance(tmp_path, content):
    (tmp_path / LOCK_FILE).write_bytes(content)
    assert holder_of(tmp_path) is None
    with locked(tmp_path):
        holder = holder_of(tmp_path)
        assert holder is not None and holder.pid == os.getpid()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_by_name(tmp_path, monkeypatch, number):
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(DataError, match=f"^{tmp_path / LOCK_FILE}: .*no locks"),
        locked(tmp_path),
    ):
        pass


def test_other_faults_of_the_file_system_are_not_taken_for_missing_locks(tmp_path, monkeypatch):
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output"), locked(tmp_path):
        pass
