"""What is read of the host, and what it means."""

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from alphazero.machine.judge import Severity, exit_status, judge_host
from alphazero.machine.memory import HostReading, read_host, read_memory

MIB = 1 << 20
GOOD = HostReading(
    memory_total=65536 * MIB,
    memory_available=60000 * MIB,
    swap_total=1000 * MIB,
    swap_used=0,
    directory="/runs",
    disk_free=500_000 * MIB,
    shm_free=30000 * MIB,
    open_files=65536,
    load=1.0,
    cores=16,
)


def judged(num_gpus: int = 0, **changes: object):
    """Findings on a good host but for `changes`."""
    reading = replace(GOOD, **changes)
    return judge_host(reading, "node1", num_gpus)


def test_shared_memory_is_not_missed_where_there_is_no_gpu():
    assert exit_status(judged(num_gpus=0, shm_free=0)) == 0
    assert exit_status(judged(num_gpus=1, shm_free=0)) != 0


def test_a_good_host_is_healthy():
    assert exit_status(judged(num_gpus=8)) == 0
    assert all(finding.advice == "" for finding in judged(num_gpus=8))


@pytest.mark.parametrize(
    ("changes", "name", "value", "severity"),
    [
        ({"memory_available": 4095 * MIB}, "memory_available_mib", 4095, Severity.WARN),
        ({"memory_available": 1023 * MIB}, "memory_available_mib", 1023, Severity.FAIL),
        ({"swap_used": 500 * MIB}, "swap_used_percent", 50.0, Severity.WARN),
        ({"disk_free": 20479 * MIB}, "disk_free_mib", 20479, Severity.WARN),
        ({"disk_free": 2047 * MIB}, "disk_free_mib", 2047, Severity.FAIL),
        ({"shm_free": 64 * MIB}, "shm_free_mib", 64, Severity.WARN),  # Docker's own size
        ({"shm_free": 31 * MIB}, "shm_free_mib", 31, Severity.FAIL),
        ({"open_files": 255}, "open_files", 255, Severity.FAIL),
        ({"load": 32.0}, "load_per_core", 2.0, Severity.WARN),
    ],
)
def test_a_fault_of_the_host_is_found(changes, name, value, severity):
    faults = [finding for finding in judged(1, **changes) if finding.severity is not Severity.OK]
    assert [(fault.name, fault.value, fault.severity) for fault in faults] == [(name, value, severity)]
    assert faults[0].host == "node1"
    assert faults[0].device == ""
    assert faults[0].advice


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"disk_free": None}, "disk_free_mib"),
        ({"shm_free": None}, "shm_free_mib"),
    ],
)
def test_what_the_system_does_not_tell_is_unknown(changes, name):
    unknown = [finding.name for finding in judged(1, **changes) if finding.severity is Severity.UNKNOWN]
    assert unknown == [name]


def test_gpus_need_cores():
    faults = [finding for finding in judged(num_gpus=9) if finding.severity is Severity.WARN]
    assert [(fault.name, fault.value) for fault in faults] == [("cores_per_gpu", 1.78)]


def test_the_reading_is_of_this_host_and_of_the_nearest_directory_that_exists(tmp_path: Path):
    reading = read_host(tmp_path / "runs" / "not there yet")
    disk = os.statvfs(tmp_path)
    assert reading.directory == str(tmp_path)
    assert reading.disk_free == pytest.approx(disk.f_bavail * disk.f_frsize, rel=0.2)
    assert 0 < reading.memory_available <= reading.memory_total <= psutil.virtual_memory().total
    assert reading.open_files == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert reading.cores >= 1


def test_the_file_limit_is_that_of_the_process(tmp_path: Path):
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "from pathlib import Path; from alphazero.machine.memory import read_host\n"
        f"print(read_host(Path({str(tmp_path)!r})).open_files)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "300\n"


def test_the_limits_of_control_groups_count_as_they_do_in_training(tmp_path: Path):
    assert read_host(tmp_path).memory_total == read_memory().total_bytes


def test_the_limit_of_a_container_counts_and_its_file_cache_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (group / "memory.max").write_text("1000\n")
    (group / "memory.current").write_text("700\n")
    (group / "memory.stat").write_text("anon 400\ninactive_file 200\n")
    monkeypatch.setattr("alphazero.machine.memory.read_memory", lambda: read_memory(tmp_path))
    reading = read_host(tmp_path)
    assert (reading.memory_total, reading.memory_available) == (1000, 500)
    (group / "memory.max").write_text("max\n")
    assert read_host(tmp_path).memory_total == psutil.virtual_memory().total
