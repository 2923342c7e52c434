"""The watch during training: figures at each look, every fault once, and nothing that disturbs the job."""

import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.paths import SUPPORT

SCRIPT = SUPPORT / "launch" / "watched_job.py"
ONE = "gpu GPU-aa\nname NVIDIA H200\n"
LIMIT_S = 20


class Job:
    """A running watched_job.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[list] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.heard: list[list] = []

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def until(self, is_it: Callable[[list], bool]) -> list:
        """The next line that is it, those before it heard too."""
        end = time.monotonic() + LIMIT_S
        while True:
            line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            self.heard.append(line)
            if is_it(line):
                return line

    def looks(self, count: int) -> None:
        """Wait for `count` further looks."""
        for _ in range(count):
            self.until(lambda line: line[0] == "figures")

    def end(self) -> float:
        """Tell it to stop; seconds it took."""
        begin = time.monotonic()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.until(lambda line: line[0] == "stopped")
        assert self._process.wait(LIMIT_S) == 0
        return time.monotonic() - begin

    def said(self) -> list[str]:
        """The lines of the log so far."""
        return [value for kind, value in self.heard if kind == "said"]


@pytest.fixture
def watching(gpus):
    """A function that starts a watched job on the machine `gpus`."""

    @contextmanager
    def start(interval_s: float = 0.05, fault: str = "none", device: str = "auto") -> Iterator[Job]:
        argv = [sys.executable, str(SCRIPT), str(interval_s), fault, device]
        with subprocess.Popen(
            argv,
            env=gpus.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Job(process)
            finally:
                process.kill()

    return start


def test_the_use_of_gpus_is_read_often_between_two_looks(gpus, watching):
    gpus.are(ONE + "utilisation 20\n")
    with watching(interval_s=3600, fault="usage") as job:
        job.until(lambda line: line == ["usage", [["GPU-aa", 20.0]]])
        gpus.are(ONE + "utilisation 95\n")
        job.until(lambda line: line == ["usage", [["GPU-aa", 95.0]]])
        gpus.are(ONE + "lost 15\n")
        job.until(lambda line: line == ["usage", []])
        gpus.are(ONE + "utilisation 60\nxid 31\n")
        job.until(lambda line: line[0] == "said")
        job.until(lambda line: line == ["usage", [["GPU-aa", 60.0]]])
        assert job.end() < 5
    assert [kind for kind, _ in job.heard].count("figures") == 1


def test_figures_are_those_of_the_host(gpus, watching):
    gpus.are(ONE)
    with watching(device="cpu") as job:
        figures = job.until(lambda line: line[0] == "figures")[1]
        job.end()
    assert {name.partition("/")[0] for name in figures} == {"host"}
    assert figures["host/memory_available_gib"] > 0
    assert job.said() == []


def test_a_fault_is_said_once_with_host_and_uuid_and_a_new_one_when_it_comes(gpus, watching):
    gpus.are(ONE)
    with watching() as job:
        job.looks(2)
        assert job.said() == []
        gpus.are(ONE + "temperature 90\n")
        job.until(lambda line: line[0] == "said")
        job.looks(5)
        gpus.are(ONE + "temperature 90\nremap_pending 1\n")
        job.until(lambda line: line[0] == "said")
        job.looks(5)
        job.end()
    hot, remap = job.said()
    place = f"{socket.gethostname()} gpu0 (GPU-aa)"
    assert hot.startswith(f"health warn: {place}: temperature_c = 90 (limit 85): ")
    assert remap.startswith(f"health fail: {place}: remap_pending = yes")


def test_an_xid_is_said_at_once_and_not_at_the_next_look(gpus, watching):
    gpus.are(ONE + "gpu GPU-bb\n")
    with watching(interval_s=3600) as job:
        job.looks(1)
        gpus.are(ONE + "gpu GPU-bb\nxid 79\n")
        job.until(lambda line: line[0] == "said")
        gpus.are(ONE + "xid 31\ngpu GPU-bb\nxid 79\n")
        job.until(lambda line: line[0] == "said")
        assert job.end() < 5
    bus, program = job.said()
    assert bus.startswith("health fail: ")
    assert "gpu1 (GPU-bb): xid_79 = 79: " in bus
    assert program.startswith("health warn: ")
    assert "gpu0 (GPU-aa): xid_31" in program


def test_a_device_lost_on_the_way_keeps_its_uuid_in_the_log(gpus, watching):
    gpus.are(ONE)
    with watching() as job:
        job.looks(1)
        gpus.are(ONE + "lost 15\n")
        line = job.until(lambda line: line[0] == "said")[1]
        job.looks(3)
        job.end()
    assert "gpu0 (GPU-aa): " in line and "is lost" in line
    assert len(job.said()) == 1


@pytest.mark.parametrize("fault", ["report", "say"])
def test_an_error_of_the_job_own_writers_never_ends_it(gpus, watching, fault):
    gpus.are(ONE + "temperature 90\n")
    with watching(fault=fault) as job:
        job.until(lambda line: line[0] == "said")
        if fault == "report":
            job.looks(3)
        job.end()
    if fault == "report":
        watcher = [line for line in job.said() if "watcher" in line]
        assert len(watcher) == 1
        assert "watcher = OSError: disk full" in watcher[0]
    else:
        assert len(job.said()) == 1


def test_no_driver_is_said_once_and_the_host_is_still_watched(gpus, watching):
    gpus.are("init 9\n")
    with watching(device="cuda") as job:
        job.looks(3)
        job.end()
    assert [line.partition(": ")[0] for line in job.said()] == ["health fail"]
    assert "Driver Not Loaded" in job.said()[0]


def test_a_driver_without_events_is_watched_by_looks(gpus, watching):
    gpus.are(ONE + "events 0\n")
    with watching() as job:
        job.looks(3)
        gpus.are(ONE + "events 0\necc_volatile 1\n")
        job.until(lambda line: line[0] == "said")
        job.end()
    assert "ecc_uncorrected_volatile = 1" in job.said()[0]
