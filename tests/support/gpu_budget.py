"""A pytest plugin for the tests marked gpu: the important ones first, within a time, told as one JSON.

`pytest -p tests.support.gpu_budget -m gpu --gpu-budget SECONDS --gpu-report FILE` (tools/gpu_proof.py). The
report is written anew after every test; what the budget does not hold is skipped and named.
"""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.measuring.machine import describe_machine
from tests.support.gpu import DEVICE, REHEARSAL

USUAL_ORDER, USUAL_SECONDS = 5, 20


def pytest_addoption(parser):
    """The flags of this plugin."""
    parser.addoption("--gpu-budget", type=float, default=510.0, help="seconds for all tests marked gpu")
    parser.addoption("--gpu-report", type=Path, default=None, help="file for the JSON")


def pytest_configure(config):
    """One report a session."""
    config.pluginmanager.register(
        GpuReport(config.getoption("--gpu-budget"), config.getoption("--gpu-report"))
    )


def wish(item, name, usual):
    """What a test's mark says of its order or its seconds."""
    mark = item.get_closest_marker("gpu")
    return mark.kwargs.get(name, usual) if mark else usual


class GpuReport:
    """Orders, skips, and writes what came of it."""

    def __init__(self, budget_s, path):
        self.budget_s = budget_s
        self.path = path
        self.started = time.monotonic()
        self.tests = {}
        self.machine = {}

    def left_s(self):
        """Seconds of the budget that are left."""
        return self.budget_s - (time.monotonic() - self.started)

    def pytest_collection_modifyitems(self, items):
        """The most important first."""
        items.sort(key=lambda item: wish(item, "order", USUAL_ORDER))

    def pytest_collection_finish(self):
        """Which machine this is; a device that does not work is told once, here."""
        try:
            self.machine = dict(describe_machine(DEVICE))
        except Exception as error:
            self.machine = {"error": f"{type(error).__name__}: {error}"}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        """Leave out what does not fit any more."""
        expected_s, left_s = wish(item, "seconds", USUAL_SECONDS), self.left_s()
        if expected_s > left_s:
            pytest.skip(f"left out for time: may take {expected_s} s, {max(left_s, 0):.0f} s were left")

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
                "spent_s": round(self.budget_s - self.left_s(), 1),
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
