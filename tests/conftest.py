"""Fixtures every test may use: the reference data that lies beside a checkout."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.data.stores import write_random_store
from tests.support.paths import SHARED_DATA

# What nobody foresaw shall be a traceback here, in jobs that tests start as well (alphazero.cli.main).
os.environ["ALPHAZERO_TRACEBACK"] = "1"
# As the command `alphazero` sets it before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
# A shell's background job ignores SIGINT, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.support.launch.fake_nvml",
    "tests.support.fixtures",
    "tests.support.own_directory",
    "tests.support.training.lone_engine",
]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What jobs remember of files, they remember for these tests alone and not for the user who runs them."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Reference data (perft counts, games, lc0 networks); tests that need it skip where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("reference data ../shared/data is not there")
    return SHARED_DATA


@pytest.fixture(scope="session")
def random_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 64 random chess games with results, made through the core and the store's own writer."""
    path = tmp_path_factory.mktemp("stores") / "random"
    write_random_store(path, num_games=64)
    return path
