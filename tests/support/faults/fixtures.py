"""Fixtures of tests that start jobs on a network of hosts and disturb them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults.faulty_job import FaultyJob
from tests.support.hosts.hosts import Host


def own_packages(directory: Path) -> str:
    """A line of sshd_config: what lies in this directory of the host comes first on its PYTHONPATH."""
    return f"SetEnv PYTHONPATH={directory}/packages"


@pytest.fixture
def start(network, tmp_path):
    """Starts a job on two hosts."""

    def begin(
        *,
        num_steps: int = 400,
        step_s: float = 0.05,
        num_hosts: int = 2,
        before: Callable[[list[Host]], None] = lambda hosts: None,
        **fields,
    ) -> FaultyJob:
        hosts = network(num_hosts, sshd_options=own_packages).hosts
        before(hosts)
        return FaultyJob(hosts, tmp_path, num_steps, step_s, **fields)

    return begin
