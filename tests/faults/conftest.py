"""Networks of hosts and jobs on them; where namespaces cannot be made the tests skip and say why."""

from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_job import FaultyJob
from hosts import Host, Network, why_not


@pytest.fixture(scope="session")
def namespaces():
    """Skips where hosts cannot be made."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def network(namespaces, tmp_path_factory):
    """Builds networks that are taken down at the end of the test."""
    built = []

    def build(num_hosts: int, **options) -> Network:
        built.append(Network.build(tmp_path_factory.mktemp("network"), num_hosts, **options))
        return built[-1]

    yield build
    for one in built:
        one.end()


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
