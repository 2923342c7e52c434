"""Processors near GPUs, as a made-up sysfs tells them."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from alphazero.machine.machine import (
    bind,
    is_bound_by_launcher,
    processors_near,
    processors_text,
)
from tests.support.paths import REPOSITORY


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two GPUs near one half of the processors each."""
    for bus, near in (("17", "0-7,16-23"), ("ca", "8-15,24-31")):
        write(tmp_path / f"sys/bus/pci/devices/0000:{bus}:00.0/local_cpulist", f"{near}\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("text", ["", "\n", "a-b\n", "1-\nx", "0-3;5"])
def test_what_is_no_list_of_processors_is_none(tmp_path, text):
    write(tmp_path / "sys/bus/pci/devices/0000:17:00.0/local_cpulist", text)
    assert processors_near("0000:17:00.0", tmp_path) == frozenset()
    assert processors_near("0000:ff:00.0", tmp_path) == frozenset()


def test_sysfs_tells_what_is_near(root):
    near = [processors_text(processors_near(f"0000:{bus}:00.0", root)) for bus in ("17", "ca")]
    assert near == ["0-7,16-23", "8-15,24-31"]


def test_a_process_is_bound_with_all_its_threads():
    program = """
import os, threading
from alphazero.machine.machine import bind
gate, ids = threading.Event(), []
def wait():
    ids.append(threading.get_native_id())
    gate.wait()
for _ in range(3):
    threading.Thread(target=wait).start()
while len(ids) < 3: pass
one = frozenset({min(os.sched_getaffinity(0))})
bind(one)
assert all(os.sched_getaffinity(task) == one for task in (0, *ids))
gate.set()
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_processors_that_are_not_there_are_an_error_of_the_system():
    before = os.sched_getaffinity(0)
    with pytest.raises(OSError, match="Invalid argument"):
        bind(frozenset({4000}))
    assert os.sched_getaffinity(threading.get_native_id()) == before


def test_a_process_knows_whether_its_launcher_bound_it():
    program = "from alphazero.machine.machine import is_bound_by_launcher; print(is_bound_by_launcher())"
    first = min(os.sched_getaffinity(0))
    for preexec, expected in ((None, "False"), (lambda: os.sched_setaffinity(0, {first}), "True")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            preexec_fn=preexec,
            capture_output=True,
            text=True,
            check=True,
        )
        if len(os.sched_getaffinity(0)) > 1 or preexec is None:
            assert done.stdout.strip() == expected
    assert is_bound_by_launcher() in (True, False)
