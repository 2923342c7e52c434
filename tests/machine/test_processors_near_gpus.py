"""Processors near GPUs, as a made-up sysfs and a library compiled in place of NVML tell them."""

import json
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
    read_processors,
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
    write(tmp_path / "list", text)
    assert read_processors(tmp_path / "list") == frozenset()
    assert read_processors(tmp_path / "absent") == frozenset()


def near_by_nvml(library: Path, directory: Path, scenario: str, uuids: list[str], root: Path) -> list[str]:
    """In a process that finds the made-up library."""
    (directory / "scenario").write_text(scenario)
    program = f"""
import json
from pathlib import Path
from alphazero.machine.machine import processors_near, processors_text
print(json.dumps([processors_text(processors_near(uuid, Path({str(root)!r}))) for uuid in {uuids!r}]))
"""
    variables = {"FAKE_NVML": str(directory / "scenario"), "LD_LIBRARY_PATH": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_sysfs_tells_what_is_near_and_a_mig_device_is_near_what_its_gpu_is(fake_nvml, tmp_path, root):
    scenario = (
        "gpu GPU-aa\npci 00000000:17:00.0\ngpu GPU-bb\nmig MIG-dd\npci 00000000:CA:00.0\n"
        "gpu GPU-cc\npci 00000000:FF:00.0\ngpu GPU-ee\n"
    )
    uuids = ["aa", "MIG-dd", "GPU-cc", "GPU-ee", "GPU-ff"]
    assert near_by_nvml(fake_nvml, tmp_path, scenario, uuids, root) == ["0-7,16-23", "8-15,24-31", "", "", ""]


def test_without_a_driver_nothing_is_known(fake_nvml, tmp_path, root, monkeypatch):
    assert near_by_nvml(fake_nvml, tmp_path, "init 9\n", ["GPU-aa"], root) == [""]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert processors_near("GPU-aa", root) == frozenset()


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
