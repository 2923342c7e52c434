"""Fixtures of tests that run training jobs."""

from collections.abc import Iterator

import pytest

from tests.support.gpu import GpuJobs
from tests.support.jobs.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Starts jobs in a tenth of the time torchrun takes, one core and one thread a rank."""
    with Zygote() as process:
        yield process


@pytest.fixture(scope="session")
def gpu_jobs() -> Iterator[GpuJobs]:
    """Starts jobs of the tests marked gpu."""
    jobs = GpuJobs()
    yield jobs
    jobs.close()
