"""Every command and Python block of README and docs runs: in the slow tier as typed, README's in forks too.

A page is read from the top, in a directory in which README was followed before. tests/support/docs/short.py
says how much less work the commands have than on the page. test_pages.py looks up every command and flag.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.docs.pages import README, Block, pages_with, runnable
from tests.support.docs.short import with_amounts
from tests.support.docs.workspace import Workspace
from tests.support.paths import REPOSITORY

OTHERS = [page for page in pages_with("sh") if page != README]


def page_id(page: Path) -> str:
    return page.name


class Followed:
    """A workspace in which README was followed, up to the first block that failed."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.error: AssertionError | None = None
        for block in runnable(README, "sh"):
            try:
                workspace.run_shell(block)
            except AssertionError as error:
                self.error = error
                break

    def read(self, page: Path) -> None:
        """Run the blocks of another page."""
        if self.error is not None:
            pytest.skip("README failed already")
        for block in runnable(page, "sh"):
            self.workspace.run_shell(block)


@pytest.fixture(scope="module")
def forked(zygote, tmp_path_factory) -> Followed:
    return Followed(Workspace(tmp_path_factory.mktemp("docs"), zygote))


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> Followed:
    return Followed(Workspace(tmp_path_factory.mktemp("typed"), None))


def test_the_commands_of_readme_run_in_order(forked):
    if forked.error is not None:
        raise forked.error


@pytest.mark.parametrize("wrong", ["alphazero runs --no-such-flag", "alphazero data info stores/nowhere"])
def test_a_wrong_flag_or_file_fails_with_its_line(forked, wrong):
    block = Block(README, 7, "sh", f"alphazero --version\n{wrong}\n", None)
    with pytest.raises(AssertionError, match=rf"README.md:8: status 2: {wrong}"):
        forked.workspace.run_shell(block)


def test_only_amounts_of_work_change():
    typed = ["--weights", "W", "--games", "400", "--nodes=100"]
    assert with_amounts(typed) == ["--weights", "W", "--games", "2", "--nodes=4"]


def test_git_ignores_what_the_pages_make(forked):
    if forked.error is not None:
        pytest.skip("README failed already")
    if shutil.which("git") is None or not (REPOSITORY / ".git").exists():
        pytest.skip("this is no checkout of git")
    made = [f"{path.name}{'/' * path.is_dir()}" for path in forked.workspace.made()]
    assert {"runs/", "stores/", "cache/"} <= set(made)
    done = subprocess.run(["git", "check-ignore", *made], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout.splitlines() == made


@pytest.mark.parametrize("page", pages_with("python"), ids=page_id)
def test_the_python_of_a_page_runs(forked, page):
    if forked.error is not None:
        pytest.skip("README failed already")
    forked.workspace.run_python(runnable(page, "python"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_commands_of_readme_run_as_typed(typed):
    if typed.error is not None:
        raise typed.error


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", OTHERS, ids=page_id)
def test_the_commands_of_a_page_run_as_typed(typed, page):
    typed.read(page)
