"""Networks of hosts for tests; where namespaces cannot be made the tests skip and say why."""

import pytest

from tests.support.hosts.hosts import Network, why_not


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
