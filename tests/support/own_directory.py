"""Every test works in a directory of its own, and none in the checkout, where a user's runs/ may be.

A command that is started in the checkout finds the runs there, and continues one that `make train` has made.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

RUNS = str(REPOSITORY / "runs")
FILE_EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir")
PROGRAMS = ("alphazero", "train_distributed.py", "launch_distributed_training.sh")


def refuse_runs_of_checkout(event: str, arguments: tuple[object, ...]) -> None:
    """As an audit hook: AssertionError where this process touches the checkout's runs, or a child might."""
    if event in FILE_EVENTS:
        path = arguments[0]
        # A name alone may be relative to an open directory, and the working directory is a test's own.
        if isinstance(path, (str, os.PathLike)) and Path(path).is_absolute():
            where = os.path.normpath(os.fspath(path))
            assert where != RUNS and not where.startswith(f"{RUNS}/"), f"a test uses {where}"
    elif event == "subprocess.Popen":
        _, argv, directory, _ = arguments
        here = Path(str(directory or Path.cwd())).resolve()
        words = [Path(os.fsdecode(word)).name for word in argv] if isinstance(argv, (list, tuple)) else []
        assert here != REPOSITORY or not set(words) & set(PROGRAMS), f"a test starts in {here}: {argv}"


def pytest_sessionstart(session: pytest.Session) -> None:
    sys.addaudithook(refuse_runs_of_checkout)


@pytest.fixture(scope="session", autouse=True)
def directory_of_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where fixtures of modules start programs."""
    os.chdir(tmp_path_factory.mktemp("session"))


@pytest.fixture(autouse=True)
def own_directory(directory_of_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a test."""
    monkeypatch.chdir(tmp_path)
