"""Networks of hosts for tests; where namespaces cannot be made the tests skip and say why.

With ALPHAZERO_REQUIRE_MULTINODE=1 they fail instead: a green run has then tried every one of them.
"""

import os
from typing import NoReturn

import pytest

from tests.support.hosts.hosts import Network, why_not

REQUIRE_VARIABLE = "ALPHAZERO_REQUIRE_MULTINODE"


def cannot_run(reason: str) -> NoReturn:
    """Skip a test of several hosts, or fail it where they are required."""
    if os.environ.get(REQUIRE_VARIABLE, "0") not in ("", "0"):
        pytest.fail(f"{reason} ({REQUIRE_VARIABLE} is set; as root: make test-packages)", pytrace=False)
    pytest.skip(reason)


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
