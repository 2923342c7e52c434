"""A pytest plugin for the tests marked gpu: the important ones first, within a time, told as one JSON.

`pytest -p tests.support.gpu_budget -m gpu --gpu-budget SECONDS --gpu-report FILE` (tools/gpu_proof.py). The
report is written anew after every test; what the budget does not hold is skipped and named. With
`--numprocesses auto` several tests share the GPU, but for those marked `alone`.
"""

import fcntl
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.measuring.machine import describe_machine
from tests.support.gpu import DEVICE, REHEARSAL

USUAL_ORDER, USUAL_SECONDS = 5, 20
# Of a test and the jobs that it starts.
CORES_A_TEST, GIB_A_TEST, MOST_PROCESSES = 2, 4, 8


def pytest_addoption(parser):
    """The flags of this plugin."""
    parser.addoption("--gpu-budget", type=float, default=510.0, help="seconds for all tests marked gpu")
    parser.addoption("--gpu-report", type=Path, default=None, help="file for the JSON")


def pytest_configure(config):
    """The processes that run tests keep to the budget; the one that was started reports."""
    config.pluginmanager.register(Budget(config.getoption("--gpu-budget")))
    if not hasattr(config, "workerinput"):
        report = GpuReport(config.getoption("--gpu-budget"), config.getoption("--gpu-report"))
        config.pluginmanager.register(report)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """As many processes as the cores and the GPU's memory hold."""
    by_cores = len(os.sched_getaffinity(0)) // CORES_A_TEST
    if REHEARSAL or not torch.cuda.is_available():
        return max(1, min(MOST_PROCESSES, by_cores))
    by_memory = torch.cuda.get_device_properties(0).total_memory // (GIB_A_TEST << 30)
    return max(1, min(MOST_PROCESSES, by_cores, by_memory))


def wish(item, name, usual):
    """What a test's mark says of its order, its seconds or its company."""
    mark = item.get_closest_marker("gpu")
    return mark.kwargs.get(name, usual) if mark else usual


class Budget:
    """Orders the tests of a process, keeps those apart that want to be alone, and skips what is too long."""

    def __init__(self, budget_s):
        self.until = time.monotonic() + budget_s
        self.gate = Path(__file__).open()  # noqa: SIM115 - until the process ends; all have the same file

    def pytest_collection_modifyitems(self, items):
        """The most important first; those that no other test may disturb last."""
        items.sort(key=lambda item: (wish(item, "alone", False), wish(item, "order", USUAL_ORDER)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # a test's own time begins behind the gate
    def pytest_runtest_protocol(self, item):
        """Wait for the others to end, or for the one that wants to be alone."""
        fcntl.flock(self.gate, fcntl.LOCK_EX if wish(item, "alone", False) else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            fcntl.flock(self.gate, fcntl.LOCK_UN)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        """Leave out what does not fit any more."""
        expected_s, left_s = wish(item, "seconds", USUAL_SECONDS), self.until - time.monotonic()
        if expected_s > left_s:
            pytest.skip(f"left out for time: may take {expected_s} s, {max(left_s, 0):.0f} s were left")


class GpuReport:
    """Writes what came of the tests, and on which machine."""

    def __init__(self, budget_s, path):
        self.budget_s = budget_s
        self.path = path
        self.started = time.monotonic()
        self.tests = {}
        self.machine = {}

    def pytest_sessionstart(self):
        """Which machine this is; a device that does not work is told once, here."""
        try:
            self.machine = dict(describe_machine(DEVICE))
        except Exception as error:
            self.machine = {"error": f"{type(error).__name__}: {error}"}

    def pytest_runtest_logreport(self, report):
        """Keep the worst of set-up, test and clean-up, and the seconds of all three."""
        found = self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        found["seconds"] = round(found["seconds"] + report.duration, 2)
        if report.user_properties:
            found["figures"] = dict(report.user_properties)
        if report.outcome != "passed" and found["outcome"] != "failed":
            found["outcome"] = report.outcome
            found["why"] = reason_of(report)
        if report.when == "teardown":
            self.write()

    def pytest_sessionfinish(self):
        """The last word."""
        self.write()

    def write(self):
        """The document as it stands."""
        if self.path is None:
            return
        outcomes = [test["outcome"] for test in self.tests.values()]
        dropped = [name for name, test in self.tests.items() if test.get("why", "").startswith("left out")]
        missing = Counter(
            test["why"] for test in self.tests.values() if test.get("why", "").endswith("not installed")
        )
        document = {
            "gpu_tests": 1,
            "rehearsal": REHEARSAL,
            "machine": self.machine,
            "summary": {
                "budget_s": self.budget_s,
                "spent_s": round(time.monotonic() - self.started, 1),
                **{outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")},
                "left_out_for_time": dropped,
                "left_out_for_packages": dict(missing),
            },
            "tests": self.tests,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def reason_of(report):
    """The last line of an error, or why a test was skipped."""
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    lines = str(report.longreprtext).strip().splitlines()
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0][:500]
