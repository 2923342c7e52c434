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
    processors_text,
    read_processors,
    share_of,
)
from tests.support.paths import REPOSITORY

NODE_0, NODE_1 = frozenset({*range(8), *range(16, 24)}), frozenset({*range(8, 16), *range(24, 32)})
ALL = NODE_0 | NODE_1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes of eight cores with two threads each, as Linux numbers them; four GPUs, two per node."""
    files = {"node/node0/cpulist": "0-7,16-23\n", "node/node1/cpulist": "8-15,24-31\n"}
    for number in ALL:
        files[f"cpu/cpu{number}/topology/thread_siblings_list"] = f"{number % 16},{number % 16 + 16}\n"
    for name, text in files.items():
        write(tmp_path / "sys/devices/system" / name, text)
    for bus, near in (("17", "0-7,16-23"), ("65", "0-7,16-23"), ("ca", "8-15,24-31"), ("e3", "8-15,24-31")):
        write(tmp_path / f"sys/bus/pci/devices/0000:{bus}:00.0/local_cpulist", f"{near}\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


FOUR = (NODE_0, NODE_0, NODE_1, NODE_1)


def test_ranks_of_one_node_share_its_cores_out_and_threads_of_a_core_stay_together(root):
    shares = [share_of(rank, FOUR, ALL, root) for rank in range(4)]
    texts = [processors_text(share) for share in shares]
    assert texts == [
        "0-3,16-19",
        "4-7,20-23",
        "8-11,24-27",
        "12-15,28-31",
    ]


def test_an_odd_core_goes_to_one_rank_and_none_is_left_out(root):
    near = (NODE_0, NODE_0, NODE_0)
    shares = [share_of(rank, near, ALL, root) for rank in range(3)]
    assert frozenset().union(*shares) == NODE_0
    assert sorted(len(share) for share in shares) == [4, 6, 6]
    assert sum(map(len, shares)) == len(NODE_0)


def test_only_processors_that_were_given_are_taken(root):
    given = frozenset({2, 3, 8, 18, 19})
    assert share_of(0, FOUR, given, root) == {2, 18}
    assert share_of(1, FOUR, given, root) == {3, 19}
    # One core for two ranks: both have it.
    assert share_of(2, FOUR, given, root) == share_of(3, FOUR, given, root) == {8}


@pytest.mark.parametrize(
    ("near", "allowed"),
    [
        ((ALL,), ALL),  # one node
        ((frozenset(),), ALL),  # unknown
        ((NODE_1,), NODE_0),  # not ours
        ((NODE_0, NODE_1), NODE_0),  # a container on one node
    ],
)
def test_where_none_is_nearer_than_another_nothing_is_done(root, near, allowed):
    assert share_of(0, near, allowed, root) is None


def test_without_topology_every_processor_is_a_core(tmp_path):
    assert share_of(1, (NODE_0, NODE_0), ALL, tmp_path) == {16, 17, 18, 19, 20, 21, 22, 23}


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
print(json.dumps([processors_text(near) for near in processors_near({uuids!r}, Path({str(root)!r}))]))
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


def test_nvml_tells_the_processors_near_a_gpu_by_uuid(fake_nvml, tmp_path, root):
    scenario = "gpu GPU-aa\ncpus ff00ff\ngpu GPU-bb\ncpus ff00ff00\n"
    found = near_by_nvml(fake_nvml, tmp_path, scenario, ["GPU-bb", "aa", "GPU-cc"], root)
    assert found == ["8-15,24-31", "0-7,16-23", ""]


def test_sysfs_tells_where_nvml_does_not_and_a_mig_device_is_near_what_its_gpu_is(fake_nvml, tmp_path, root):
    scenario = (
        "gpu GPU-aa\npci 00000000:17:00.0\ngpu GPU-bb\nmig MIG-dd\npci 00000000:CA:00.0\n"
        "gpu GPU-cc\npci 00000000:FF:00.0\ngpu GPU-ee\ncpus 0\n"
    )
    uuids = ["GPU-aa", "MIG-dd", "GPU-cc", "GPU-ee"]
    assert near_by_nvml(fake_nvml, tmp_path, scenario, uuids, root) == ["0-7,16-23", "8-15,24-31", "", ""]


def test_without_a_driver_nothing_is_known(fake_nvml, tmp_path, root, monkeypatch):
    assert near_by_nvml(fake_nvml, tmp_path, "init 9\n", ["GPU-aa"], root) == [""]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert processors_near(["GPU-aa"], root) == (frozenset(),)


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
