"""A job on hosts in namespaces, over the stand-ins, for tests that hurt it."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.hosts.hosts import Host
from tests.support.jobs.jobs import without_times
from tests.support.paths import REPOSITORY

FAKE_HEAD = Path(__file__).with_name("fake_head.py")
LIMIT_S = 30.0
# Name, ssh target, slots. The head's own host needs no ssh.
HOSTS = [["host1", "", 2], ["host2", "host2", 2], ["host3", "host3", 2]]


class FaultyJob:
    """A job on the hosts of a network, its head on host1."""

    def __init__(
        self,
        machines: list[Host],
        directory: Path,
        num_steps: int,
        step_s: float,
        environment: dict[str, str] | None = None,
        output: int | None = None,
        **fields,
    ) -> None:
        self.hosts = machines
        self.run = directory / "runs" / "job"
        self.output = directory / "said"
        arguments = [str(self.run), str(num_steps), str(step_s)]
        fields = {
            "hosts": HOSTS[: len(machines)],
            "arguments": arguments,
            "first_delay_s": 0.1,
            "grace_s": 2.0,
            **fields,
        }
        self.decoys = [
            # Looks like a rank of another job, on each host.
            host.popen("env", "LOCAL_RANK=0", "ALPHAZERO_JOB=other", "sleep", "1000")
            for host in machines
        ]
        self.started = time.monotonic()
        self.head = machines[0].popen(
            sys.executable,
            str(FAKE_HEAD),
            json.dumps(fields),
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(environment or {})},
            stdout=self.output.open("w") if output is None else output,
            stderr=subprocess.STDOUT,
        )

    def heartbeat(self, rank: int) -> dict:
        """What a rank said last, {} before its first word."""
        try:
            return json.loads((self.run / "heartbeat" / f"rank-{rank:05d}.json").read_text())
        except (OSError, ValueError):
            return {}

    def wait_until(self, what: str, condition: Callable[[], bool], limit_s: float) -> None:
        """Until it is so; fails the test where the job ends before or it takes too long."""
        deadline = time.monotonic() + limit_s
        while not condition():
            ended = self.head.poll() is not None
            assert not ended, f"ended before {what}: {self.output.read_text()}"
            assert time.monotonic() < deadline, f"no {what}: {self.output.read_text()}"
            time.sleep(0.02)

    def wait_for_step(self, step: int, rank: int = 0, limit_s: float = 30.0) -> None:
        """Until a rank is in step `step` or beyond."""
        self.wait_until(f"step {step}", lambda: self.heartbeat(rank).get("step", -1) >= step, limit_s)

    def wait_for_output(self, pattern: str, limit_s: float = 30.0) -> None:
        """Until the head has said it."""
        self.wait_until(pattern, lambda: bool(re.search(pattern, self.output.read_text())), limit_s)

    def rank_process(self, host: Host, rank: int) -> int:
        """pid, on its host, of a rank."""
        found = [pid for pid in host.python_processes() if host.environment_of(pid).get("RANK") == str(rank)]
        assert len(found) == 1, found
        return found[0]

    def process(self, host: Host, part: str) -> int:
        """pid, on its host, of the process whose command line holds `part` (the oldest such)."""
        return min(pid for pid, line in host.python_processes().items() if part in line)

    def end(self, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """Exit status and what was said; within the limit, nothing left, nobody hurt."""
        try:
            self.head.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.head.kill()
            raise AssertionError(f"still runs after {limit_s} s") from None
        for host in self.hosts:
            host.wait_until_idle(limit_s=15.0)
        self.assert_decoys_live()
        said = self.output.read_text() if self.output.exists() else ""
        return self.head.returncode, without_times(said)

    def assert_decoys_live(self) -> None:
        assert all(decoy.poll() is None for decoy in self.decoys)
