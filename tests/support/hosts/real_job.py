"""The launcher with the real trainer on hosts in namespaces, as a user types it."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.support.hosts.hosts import Host, Network
from tests.support.jobs.jobs import TINY, environment, without_times
from tests.support.paths import REPOSITORY

STEPS = 30
LAUNCH = str(REPOSITORY / "launch_distributed_training.sh")
JOB_LIMIT_S = 300


class Job:
    """The launcher, or another program that starts the trainer, on one host, as a user types it."""

    def __init__(
        self, host: Host, directory: Path, store: Path, *arguments: str, program: tuple[str, ...] = (LAUNCH,)
    ) -> None:
        self.host = host
        self.output = directory / f"said-{host.name}"
        self.process = host.popen(
            *program,
            *TINY,
            *("--data", str(store), "--steps", str(STEPS)),
            *arguments,
            cwd=directory,
            env={**environment(), "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": ""},
            stdout=self.output.open("w"),
            stderr=subprocess.STDOUT,
        )

    def end(self) -> tuple[int, str]:
        """Exit status and what was said."""
        try:
            status = self.process.wait(JOB_LIMIT_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, 9)
        return status, without_times(self.output.read_text())

    def signal(self, name: str, pattern: str) -> None:
        """A signal to the processes on the job's host whose command line fits."""
        pids = [str(pid) for pid, line in self.host.processes().items() if re.search(pattern, line)]
        assert pids, self.host.processes()
        self.host.run("kill", f"-{name}", *pids)

    def wait_for(self, pattern: str) -> None:
        """Until it has been said."""
        deadline = time.monotonic() + JOB_LIMIT_S
        while not re.search(pattern, self.output.read_text()):
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, f"no {pattern}: {self.output.read_text()}"
            time.sleep(0.1)


def write_hostfile(directory: Path, num_hosts: int) -> None:
    lines = [f"host{number} slots=2\n" for number in range(1, num_hosts + 1)]
    (directory / "hostfile").write_text("".join(lines))


def error_line(said: str) -> str:
    """The head's last word, which names the culprit; only the line to continue with may follow it."""
    lines = [line for line in said.splitlines() if not line.startswith("alphazero: continue with: ")]
    assert lines[-1].startswith("alphazero: error: "), said
    return lines[-1]


def rank_names(num_hosts: int) -> list[str]:
    return [f"host{rank // 2 + 1}-rank{rank}.log" for rank in range(2 * num_hosts)]


def assert_idle(network: Network) -> None:
    for host in network.hosts:
        host.wait_until_idle(limit_s=15)
