"""Fixtures of tests that run training jobs, on this machine or on a network of hosts."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.faults.faulty_job import FaultyJob
from tests.support.gpu import OF_JOBS, GpuJobs, need
from tests.support.hosts.hosts import Host, Network, cannot_run, why_not
from tests.support.jobs.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Starts jobs in a tenth of the time torchrun takes, one core and one thread a rank."""
    with Zygote() as process:
        yield process


@pytest.fixture(scope="session")
def gpu_jobs() -> Iterator[GpuJobs]:
    """Starts jobs of the tests marked gpu; skips them where DeepSpeed is missing."""
    need(*OF_JOBS)
    with Zygote(with_devices=True) as process:
        yield GpuJobs(process)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips where hosts cannot be made."""
    if reason := why_not():
        cannot_run(reason)


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


@pytest.fixture
def start(network, tmp_path):
    """Starts a job over stand-ins of the launcher and the trainer, on two hosts."""

    def begin(
        *,
        num_steps: int = 400,
        step_s: float = 0.05,
        num_hosts: int = 2,
        before: Callable[[list[Host]], None] = lambda hosts: None,
        **fields,
    ) -> FaultyJob:
        # What lies in packages/ of a host comes first on its PYTHONPATH.
        options = "SetEnv PYTHONPATH={directory}/packages"
        hosts = network(num_hosts, sshd_options=options).hosts
        before(hosts)
        return FaultyJob(hosts, tmp_path, num_steps, step_s, **fields)

    return begin
